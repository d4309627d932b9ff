// locky 0.3.3: lock and unlock. It does not wait: the caller must
// ask again.
"use strict";

const { args, sleep, serve } = require("./protocol.js");
const Locky = require("locky");

const locky = new Locky({ ttl: args.ttl, redis: { host: args.host, port: args.port } });
const call = (object, method, ...rest) =>
	new Promise((yes, no) => object[method](...rest, (err, reply) => (err ? no(err) : yes(reply))));

serve({
	command: (name, ...rest) => call(locky.redis, name, ...rest),
	acquire: async () => {
		while (!(await call(locky, "lock", { resource: args.name, locker: "pid-" + process.pid }))) await sleep(args.poll);
	},
	release: () => call(locky, "unlock", args.name),
});
