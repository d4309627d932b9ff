<?php
// Laravel's cache lock since 5.8: NAME for 300 s, behind the prefixes of its database and its cache.
[, $host, $port, $name] = $argv;
require '/usr/share/php/Illuminate/autoload.php';
$redis = new Illuminate\Redis\RedisManager(null, 'predis', ['default' => ['host' => $host, 'port' => (int) $port, 'database' => 0], 'options' => ['prefix' => 'laravel_database_']]);
$store = new Illuminate\Cache\RedisStore($redis, 'laravel_cache', 'default');
exit($store->lock($name, 300)->get() ? 0 : 1);
