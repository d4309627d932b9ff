import com.github.jedis.lock.JedisLock;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Random;
import redis.clients.jedis.Jedis;

/** jedis-lock 1.0.0, milliseconds: waiting, it sleeps 100 ms. The words are protocol.py's. */
public class JedisLockDriver {
	public static void main(String[] args) throws Exception {
		String host = args[0];
		int port = Integer.parseInt(args[1]);
		int poll = Integer.parseInt(args[4]);
		Jedis jedis = new Jedis(host, port);
		JedisLock lock = new JedisLock(jedis, args[2], Integer.MAX_VALUE, Integer.parseInt(args[3]));
		Random random = new Random();
		String who = "theirs-" + random.nextInt(1000000000);

		System.out.println("ready");
		BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
		for (String line; (line = in.readLine()) != null;) {
			String answer;
			try {
				if (line.equals("acquire")) {
					answer = lock.acquire() ? "held" : "refused";
				} else if (line.equals("release")) {
					lock.release();
					answer = "released";
				} else {
					int n = Integer.parseInt(line.split(" ")[1]);
					for (int i = 0; i < n; i++) {
						while (!lock.acquire()) {
						}
						jedis.rpush("interop:log", "enter " + who);
						String count = jedis.get("interop:count");
						jedis.set("interop:count", String.valueOf(count == null ? 1 : Integer.parseInt(count) + 1));
						jedis.rpush("interop:log", "leave " + who);
						lock.release();
						Thread.sleep(random.nextInt(2 * poll + 1));
					}
					answer = "worked " + n + " lost 0";
				}
			} catch (Exception e) {
				answer = "threw " + e.getClass().getSimpleName() + ": " + e.getMessage();
			}
			System.out.println(answer);
		}
	}
}
