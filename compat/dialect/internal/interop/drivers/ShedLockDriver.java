import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.jedis4.JedisLockProvider;
import redis.clients.jedis.JedisPool;

/** ShedLock 5.12.0, Jedis's provider. It does not wait. NAME is ENVIRONMENT:NAME. */
public class ShedLockDriver {
	static SimpleLock held;

	public static void main(String[] args) throws Exception {
		Protocol p = new Protocol(args);
		String[] name = p.name.split(":", 2);
		LockProvider provider = new JedisLockProvider(new JedisPool(p.host, p.port), name[0]);
		p.serve(() -> p.until(() -> {
			Optional<SimpleLock> lock = provider.lock(new LockConfiguration(Instant.now(), name[1], Duration.ofMillis(p.ttl), Duration.ZERO));
			lock.ifPresent(l -> held = l);
			return lock.isPresent();
		}), () -> held.unlock());
	}
}
