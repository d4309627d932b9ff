// redis-lock 0.0.8: a callback that is given the release.
"use strict";

const { args, serve } = require("./protocol.js");
const client = require("redis").createClient(args.port, args.host);
const lock = require("redis-lock")(client, args.poll);

let done;
serve({
	command: (name, ...rest) => new Promise((yes, no) => client[name](...rest, (err, reply) => (err ? no(err) : yes(reply)))),
	acquire: () => new Promise((held) => lock(args.name, args.ttl, (release) => { done = release; held(); })),
	release: () => new Promise((released, no) => done((err) => (err ? no(err) : released()))),
});
