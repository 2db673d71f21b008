// Whoever follows a link on another site comes without the cookie, although there is one: the browser
// sends it along from here, and only from here. Then there is nothing to sign in for.

const answer = await fetch("api/worker").catch(() => null);
if (answer?.ok) location.replace(`./${location.search}`);
