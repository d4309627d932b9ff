import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Random;
import java.util.concurrent.Callable;
import redis.clients.jedis.Jedis;

/** The words that the tests send, and the answers: see protocol.py. */
class Protocol {
	final String host, name;
	final int port, poll;
	final long ttl;
	private final Random random = new Random();

	Protocol(String[] args) {
		host = args[0];
		port = Integer.parseInt(args[1]);
		name = args[2];
		ttl = Long.parseLong(args[3]);
		poll = Integer.parseInt(args[4]);
	}

	interface Step {
		void run() throws Exception;
	}

	/** Asks until the lock is taken. */
	void until(Callable<Boolean> taken) throws Exception {
		while (!taken.call()) {
			Thread.sleep(poll);
		}
	}

	void serve(Step acquire, Step release) throws Exception {
		Jedis jedis = new Jedis(host, port);
		String who = "theirs-" + random.nextInt(1000000000);
		System.out.println("ready");
		BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
		for (String line; (line = in.readLine()) != null;) {
			String answer;
			try {
				if (line.equals("acquire")) {
					acquire.run();
					answer = "held";
				} else if (line.equals("release")) {
					release.run();
					answer = "released";
				} else {
					answer = work(Integer.parseInt(line.split(" ")[1]), jedis, who, acquire, release);
				}
			} catch (Exception e) {
				answer = "threw " + e.getClass().getSimpleName() + ": " + e.getMessage();
			}
			System.out.println(answer.replace('\n', ' '));
		}
		System.exit(0); // the clients' own threads may still run
	}

	private String work(int n, Jedis jedis, String who, Step acquire, Step release) throws Exception {
		int lost = 0;
		for (int i = 0; i < n; i++) {
			acquire.run();
			jedis.rpush("interop:log", "enter " + who);
			String count = jedis.get("interop:count");
			jedis.set("interop:count", String.valueOf(count == null ? 1 : Integer.parseInt(count) + 1));
			jedis.rpush("interop:log", "leave " + who);
			try {
				release.run();
			} catch (Exception e) {
				lost++;
			}
			Thread.sleep(random.nextInt(2 * poll + 1));
		}
		return "worked " + n + " lost " + lost;
	}
}
