// redis-semaphore 5.6.2: Mutex, without its refresh.
"use strict";

const { args, serve } = require("./protocol.js");
const Redis = require("ioredis");
const { Mutex } = require("redis-semaphore");

const client = new Redis(args.port, args.host);
const mutex = new Mutex(client, args.name, {
	lockTimeout: args.ttl, acquireTimeout: 3600e3, retryInterval: args.poll, refreshInterval: 0,
});
serve({
	command: (name, ...rest) => client[name](...rest),
	acquire: () => mutex.acquire(),
	release: () => mutex.release(),
});
