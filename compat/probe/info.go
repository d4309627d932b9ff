package probe

import (
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// askInfo takes hints: the version, the role, the settings that CONFIG may not
// tell.
func (p *prober) askInfo() bool {
	reply := p.ask(protocol.Cmd{"INFO"})[0]
	text, err := redis.String(reply, nil)
	if list, lerr := redis.Strings(reply, nil); lerr == nil && len(list) > 0 { // SSDB's is an array
		text, err = "server_name:"+strings.TrimSuffix(list[0], "-server")+"\n", nil
	}
	if err != nil {
		return false
	}
	p.info = parseInfo(text)
	p.r.Version = p.info["redis_version"]
	p.setRole(p.info["role"])
	if host := p.info["master_host"]; host != "" {
		p.r.Master = host + ":" + p.info["master_port"]
	}
	return true
}

// role asks again where INFO does not have it (ROLE: 2.8.12).
func (p *prober) role() bool {
	if p.r.Role != "" {
		p.asked, p.answers = []string{"–"}, []string{"INFO says " + p.r.Role}
		return true
	}
	list, err := redis.Values(p.ask(protocol.Cmd{"ROLE"})[0], nil)
	if err != nil || len(list) == 0 {
		return false
	}
	role, _ := redis.String(list[0], nil)
	p.setRole(role)
	return p.r.Role != ""
}

func (p *prober) setRole(s string) {
	if s == "slave" {
		s = "replica"
	}
	p.r.Role = s
}

// config asks for the settings that can end a lock or a connection. INFO of later versions has some of it.
func (p *prober) config() bool {
	names := []string{"maxmemory", "maxmemory-policy", "timeout", "save", "appendonly"}
	cmds := make([]protocol.Cmd, len(names))
	for i, n := range names {
		cmds[i] = protocol.Cmd{"CONFIG", "GET", n}
	}
	p.conf = make(map[string]string)
	for i, r := range p.ask(cmds...) {
		if kv, err := redis.Strings(r, nil); err == nil && len(kv) == 2 && kv[0] == names[i] {
			p.conf[names[i]] = kv[1]
		}
	}
	told := len(p.conf) > 0
	for conf, info := range map[string]string{"maxmemory": "maxmemory", "maxmemory-policy": "maxmemory_policy"} {
		if v, ok := p.info[info]; ok && p.conf[conf] == "" {
			p.conf[conf] = v
		}
	}
	if v, ok := p.info["aof_enabled"]; ok && p.conf["appendonly"] == "" {
		p.conf["appendonly"] = map[string]string{"0": "no", "1": "yes"}[v]
	}
	return told
}

// kind names the server and its own version, with our reason to think so.
func kind(p *prober) (name, own, why string) {
	r := p.r
	name, own, why = product(p.info)
	switch {
	case name != "" && name != "redis":
		return name, own, why
	case len(p.closers) > 0:
		return "proxy", "", "it closes the connection on " + strings.Join(p.closers, ", ")
	case r.Can(ability.ExpireAgain) && !r.Can(ability.Multi) && answer.Of(r.Answers[ability.Multi].Reply) != answer.Permission:
		return "proxy", "", "EXPIRE moves an end that was set before, as since 2.2, and yet there is no MULTI: a proxy, or not a Redis server"
	case name != "":
		return name, own, why
	case r.Can(ability.Multi):
		return "redis", "", "it behaves like one"
	}
	return "", "", "nothing says so"
}

// product names the server behind an INFO ("redis", "valkey", …; "" if it names none), its own version if it is not
// Redis ("" if it does not say), and how both are known. Such a server's redis_version names the Redis that it is like.
func product(info map[string]string) (name, own, why string) {
	for _, field := range []string{"valkey_version", "dragonfly_version", "garnet_version", "pika_version", "kvrocks_version"} {
		if v := info[field]; v != "" {
			return strings.TrimSuffix(field, "_version"), v, "INFO says " + field + ":" + v
		}
	}
	if v := info["server_name"]; v != "" && v != "redis" {
		return v, "", "INFO says so"
	}
	if strings.Contains(info["executable"], "keydb") {
		return "keydb", "", "INFO says executable:" + info["executable"]
	}
	if v := info["redis_version"]; v != "" {
		return "redis", "", "INFO says redis_version:" + v
	}
	return "", "", ""
}
