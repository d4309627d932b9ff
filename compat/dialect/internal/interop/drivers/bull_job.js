// Bull 4.16.5: the lock of a job, which a worker takes before it works on it. It
// does not wait: the caller must ask again. NAME is QUEUE:JOB.
"use strict";

const { args, sleep, serve } = require("./protocol.js");
const Queue = require("bull");

(async () => {
	const [name, id] = args.name.split(":");
	const queue = new Queue(name, { redis: { host: args.host, port: args.port }, settings: { lockDuration: args.ttl } });
	const job = await queue.add({}, { jobId: id, delay: 3600e3 });
	serve({
		command: (word, ...rest) => queue.client[word](...rest),
		acquire: async () => { while (!(await job.takeLock())) await sleep(args.poll); },
		release: () => job.releaseLock(),
	});
})();
