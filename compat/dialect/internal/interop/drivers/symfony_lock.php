<?php
// Symfony's RedisStore since 5.2: a writer on WRITER, two readers on READERS, whose leases last 300 s.
[, $host, $port, $writer, $readers] = $argv;
require '/usr/share/php/Symfony/Component/Lock/autoload.php';
$redis = new Redis();
$redis->connect($host, (int) $port);
$locks = new Symfony\Component\Lock\LockFactory(new Symfony\Component\Lock\Store\RedisStore($redis, 300));
$held = [$locks->createLock($writer, 300, false), $locks->createLock($readers, 300, false), $locks->createLock($readers, 300, false)];
exit($held[0]->acquire() && $held[1]->acquireRead() && $held[2]->acquireRead() ? 0 : 1);
