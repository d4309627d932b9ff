#!/usr/bin/env bash
# install.sh installs the real clients of other languages into .clients and nowhere
# else, each from its registry, at the version that the tests use. It skips clients
# that are installed already, and installs the others side by side. If it cannot
# reach a registry, it says so on stderr and goes on; the tests then say what was
# not run.
#
#   install.sh          all
#   install.sh NAME...  these
set -uo pipefail
cd "$(dirname "$0")"
mkdir -p .clients
failed=$(mktemp)
trap 'rm -f "$failed"' EXIT

# client NAME COMMAND...: run COMMAND in an empty folder in the background, and
# keep the folder only if it succeeds, so that no client is half installed.
client() {
	[[ -z $wanted || $wanted == *" $1 "* ]] || return 0
	[[ -d .clients/$1 ]] && return 0
	install "$@" &
}

install() {
	local name=$1
	shift
	local part=.clients/$name.part log=.clients/$name.log
	rm -rf "$part"
	mkdir "$part"
	if (cd "$part" && "$@") >"$log" 2>&1 </dev/null; then
		mv "$part" ".clients/$name"
		echo "installed $name"
	else
		echo "INTEROP: $name WAS NOT INSTALLED: $*" >&2
		sed 's/^/    /' "$log" | tail -n 5 >&2
		echo "$name" >>"$failed"
	fi
	rm -rf "$part" "$log"
}

# Without dependencies: the version of redis-py for each lock is chosen here.
pypi() { pypi_all --no-deps "$@"; }

# By the interpreter itself: what pyenv puts in its place takes a lock after each installation, where only one can wait.
python=$(python3 -c 'import sys; print(sys.executable)')

pypi_all() { "$python" -m pip install --quiet --disable-pip-version-check --no-compile --target . "$@"; }

# For Python 2.7: a link to the interpreter is installed too.
pypi27() {
	local python
	for python in "$(command -v python2.7)" "$HOME"/.pyenv/versions/2.7.*/bin/python2.7; do
		"$python" -c '' || continue
		"$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --target . "$@" || return
		ln -s "$python" python
		return
	done
	echo "there is no Python 2.7"
	return 1
}

npm_() { echo '{"private": true}' >package.json && npm install --silent --no-audit --no-fund --save-exact "$@"; }

maven() {
	local artifact
	for artifact; do
		mvn --quiet --batch-mode dependency:copy -Dartifact="$artifact" -DoutputDirectory=. || return
	done
}

# The artifacts with what they depend on.
maven_all() {
	local artifact group name version
	{
		echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
		echo '<groupId>interop</groupId><artifactId>interop</artifactId><version>1</version><dependencies>'
		for artifact; do
			IFS=: read -r group name version <<<"$artifact"
			echo "<dependency><groupId>$group</groupId><artifactId>$name</artifactId><version>$version</version></dependency>"
		done
		echo '</dependencies></project>'
	} >pom.xml
	mvn --quiet --batch-mode dependency:copy-dependencies -DoutputDirectory=.
}

# The program of bench/driver, whose module has Go's other locks, with the client's name as its first word.
golang() {
	local out=$PWD
	(cd ../../../../../../bench && go build -o "$out/driver" ./driver)
}

# Unpacked, not installed: the system's Python stays unchanged.
debian() {
	apt-get download "$@" || { apt-get update -qq && apt-get download "$@"; } || return
	local deb
	for deb in *.deb; do dpkg-deb --extract "$deb" . || return; done
	mv usr/lib/python3/dist-packages/* . && rm -r usr ./*.deb
}

wanted=${*:+" $* "}
client npm-redis-lock npm_ redis-lock@0.0.8 redis@0.12.1
client node-resque npm_ node-resque@9.7.1 ioredis@5.11.1
client locky npm_ locky@0.3.3
client redis-py-2.2.2 pypi27 redis==2.2.2
client redis-py-2.9.1 pypi redis==2.9.1
client redis-py-2.10.6 pypi redis==2.10.6
client retools pypi retools==0.3 redis==2.9.1
client redset pypi redset==0.5.1 redis==2.9.1
client Beaker pypi Beaker==1.10.0 redis==2.10.6
client jedis-lock maven com.github.jedis-lock:jedis-lock:1.0.0 redis.clients:jedis:1.5.2
client python3-redis debian python3-redis python3-async-timeout python3-deprecated python3-packaging python3-wrapt
client rq-scheduler pypi_all rq-scheduler==0.14.0 rq==2.6.0 redis==6.4.0 setuptools==80.9.0
client python-redis-lock pypi python-redis-lock==4.0.0 redis==4.5.5 async-timeout==4.0.3
client redlock-py pypi redlock-py==1.0.8 redis==4.5.5 async-timeout==4.0.3
client npm-redlock npm_ redlock@4.2.0 ioredis@5.4.1
client npm-redis-semaphore npm_ redis-semaphore@5.6.2 ioredis@5.4.1
client Bull npm_ bull@4.16.5
client spring-5 maven_all org.springframework.integration:spring-integration-redis:5.5.20 redis.clients:jedis:3.8.0
client spring-6 maven_all org.springframework.integration:spring-integration-redis:6.3.4 redis.clients:jedis:5.1.5
client ShedLock maven_all net.javacrumbs.shedlock:shedlock-provider-redis-jedis4:5.12.0 redis.clients:jedis:5.1.5 org.slf4j:slf4j-nop:2.0.16
client Redisson maven_all org.redisson:redisson:3.37.0 org.slf4j:slf4j-nop:2.0.16
for name in redsync bsm-redislock rueidislock; do
	rm -rf .clients/$name # it is built of what stands here, which may have changed
	client $name golang
done
wait
[[ ! -s $failed ]]
