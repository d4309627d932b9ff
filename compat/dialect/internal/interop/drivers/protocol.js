// The commands that the tests send to a client, one per line, and its answers:
// see protocol.py.
"use strict";

const [host, port, name, ttl, poll] = process.argv.slice(2);
const args = { host, port: Number(port), name, ttl: Number(ttl), poll: Number(poll) };
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// serve: command(name, ...args), acquire() and release() return promises.
async function serve({ command, acquire, release }) {
	const who = "theirs-" + Math.floor(Math.random() * 1e9);

	async function section() {
		await command("rpush", "interop:log", "enter " + who);
		const count = Number(await command("get", "interop:count"));
		await command("set", "interop:count", count + 1);
		await command("rpush", "interop:log", "leave " + who);
	}

	async function work(n) {
		let lost = 0;
		for (let i = 0; i < n; i++) {
			await acquire();
			await section();
			await release().catch(() => lost++);
			await sleep(2 * args.poll * Math.random());
		}
		return `worked ${n} lost ${lost}`;
	}

	async function run(word, n) {
		switch (word) {
		case "acquire":
			await acquire();
			return "held";
		case "release":
			await release();
			return "released";
		default:
			return work(Number(n));
		}
	}

	console.log("ready");
	for await (const line of require("readline").createInterface({ input: process.stdin })) {
		let answer;
		try {
			answer = await run(...line.split(" "));
		} catch (e) {
			answer = `threw ${e.name}: ${e.message}`;
		}
		console.log(answer);
	}
	process.exit(0); // the test has ended, but the client's timers may still run
}

module.exports = { args, sleep, serve };
