// node-resque 9.7.1: the plugin QueueLock. A queue asks it for the lock before it
// accepts a job (beforeEnqueue), and it releases the lock when the job begins
// (beforePerform). It does not wait: the caller must ask again. NAME is
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
