// node-resque 9.7.1: the plugin QueueLock, which a queue asks before it takes a
// job (beforeEnqueue) and which gives the lock back when the job begins
// (beforePerform). It does not wait: when to ask again is the caller's. NAME is
// FUNCTION:QUEUE:ARGUMENTS.
"use strict";

const { args, sleep, serve } = require("./protocol.js");
const { Queue, Plugins } = require("node-resque");

(async () => {
	const queue = new Queue({ connection: { pkg: "ioredis", host: args.host, port: args.port, database: 0 } }, {});
	queue.on("error", (e) => { console.error(e); });
	await queue.connect();
	const [, func, name, list] = /^(\w+):(\w+):(.*)$/.exec(args.name);
	const lock = new Plugins.QueueLock(queue, func, name, {}, JSON.parse(list), { lockTimeout: args.ttl / 1000 });
	const redis = queue.connection.redis;
	serve({
		command: (word, ...rest) => redis[word](...rest),
		acquire: async () => { while (!(await lock.beforeEnqueue())) await sleep(args.poll); },
		release: () => lock.beforePerform(),
	});
})();
