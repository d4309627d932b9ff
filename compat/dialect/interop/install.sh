#!/usr/bin/env bash
# install.sh installs the real clients of other languages into .clients and nowhere
# else, each from its registry, at the version that the tests use. It skips clients
# that are installed already. If it cannot reach a registry, it says so on stderr
# and goes on; the tests then say what was not run.
#
#   install.sh          all
#   install.sh NAME...  these
set -uo pipefail
cd "$(dirname "$0")"
mkdir -p .clients
missing=0

# client NAME COMMAND...: run COMMAND in an empty folder, and keep the folder only
# if it succeeds, so that no client is half installed.
client() {
	local name=$1
	shift
	[[ -z $wanted || $wanted == *" $name "* ]] || return 0
	[[ -d .clients/$name ]] && return 0
	local part=.clients/$name.part log=.clients/$name.log
	rm -rf "$part"
	mkdir "$part"
	if (cd "$part" && "$@") >"$log" 2>&1 </dev/null; then
		mv "$part" ".clients/$name"
		echo "installed $name"
	else
		echo "INTEROP: $name WAS NOT INSTALLED: $*" >&2
		sed 's/^/    /' "$log" | tail -n 5 >&2
		missing=1
	fi
	rm -rf "$part" "$log"
}

# Without dependencies: the version of redis-py for each lock is chosen here.
pypi() { python3 -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --target . "$@"; }

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
exit $missing
