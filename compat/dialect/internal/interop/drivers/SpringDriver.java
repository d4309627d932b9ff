import java.util.concurrent.locks.Lock;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.jedis.JedisConnectionFactory;
import org.springframework.integration.redis.util.RedisLockRegistry;

/**
 * Spring Integration 5.5.20 and 6.3.4: RedisLockRegistry. NAME is REGISTRY:NAME. Waiting, it sleeps
 * 100 ms.
 */
public class SpringDriver {
	public static void main(String[] args) throws Exception {
		Protocol p = new Protocol(args);
		JedisConnectionFactory redis = new JedisConnectionFactory(new RedisStandaloneConfiguration(p.host, p.port));
		redis.afterPropertiesSet();
		try {
			redis.getClass().getMethod("start").invoke(redis); // since Spring Data 3
		} catch (NoSuchMethodException e) {
			// before, afterPropertiesSet is enough
		}
		String[] name = p.name.split(":", 2);
		Lock lock = new RedisLockRegistry(redis, name[0], p.ttl).obtain(name[1]);
		p.serve(lock::lock, lock::unlock);
	}
}
