// redis-semaphore 5.6.2: Semaphore of two, without its refresh.
"use strict";

const { args, serve } = require("./protocol.js");
const Redis = require("ioredis");
const { Semaphore } = require("redis-semaphore");

const client = new Redis(args.port, args.host);
const semaphore = new Semaphore(client, args.name, 2, {
	lockTimeout: args.ttl, acquireTimeout: 3600e3, retryInterval: args.poll, refreshInterval: 0,
});
serve({
	command: (name, ...rest) => client[name](...rest),
	acquire: () => semaphore.acquire(),
	release: () => semaphore.release(),
});
