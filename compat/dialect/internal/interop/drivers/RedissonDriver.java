import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.config.Config;

/** Redisson 3.37.0: RLock, a hash. It needs no lock of ours: see TestInteropRedisson. */
public class RedissonDriver {
	public static void main(String[] args) throws Exception {
		String address = "redis://" + args[0] + ":" + args[1];
		Config config = new Config();
		config.useSingleServer().setAddress(address).setConnectionMinimumIdleSize(1).setConnectionPoolSize(2).setSubscriptionConnectionMinimumIdleSize(1);
		RLock lock = Redisson.create(config).getLock(args[2]);
		long ttl = Long.parseLong(args[3]);
		System.out.println("ready");
		java.io.BufferedReader in = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
		for (String line; (line = in.readLine()) != null;) {
			String answer;
			try {
				if (line.equals("acquire")) {
					answer = lock.tryLock(0, ttl, TimeUnit.MILLISECONDS) ? "held" : "refused";
				} else {
					lock.unlock();
					answer = "released";
				}
			} catch (Exception e) {
				answer = "threw " + e.getClass().getSimpleName() + ": " + e.getMessage();
			}
			System.out.println(answer.replace('\n', ' '));
		}
		System.exit(0);
	}
}
