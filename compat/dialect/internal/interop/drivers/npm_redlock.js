// redlock 4.2.0, with one server.
"use strict";

const { args, serve } = require("./protocol.js");
const Redis = require("ioredis");
const Redlock = require("redlock");

const client = new Redis(args.port, args.host);
const locks = new Redlock([client], { retryCount: -1, retryDelay: args.poll, retryJitter: 0 });

let held;
serve({
	command: (name, ...rest) => client[name](...rest),
	acquire: async () => { held = await locks.lock(args.name, args.ttl); },
	release: () => held.unlock(),
});
