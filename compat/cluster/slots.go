package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
)

const slotCount = 16384

// A slotMap says which server has which slot.
type slotMap struct {
	masters  []string
	replicas []string
	ids      map[string]string // of the masters that told theirs, by address
	of       [slotCount]uint16 // 1 + the index of its master; 0: nobody's
}

// master returns the address of slot's master. For a slot that nobody has, or for noSlot, it returns any: that server
// will say so itself.
func (m *slotMap) master(slot int) string {
	if addr := m.owner(slot); addr != "" {
		return addr
	}
	return m.masters[rand.IntN(len(m.masters))]
}

// owner returns the address of slot's master; "" if it has none, or slot is noSlot.
func (m *slotMap) owner(slot int) string {
	if slot == noSlot || m.of[slot] == 0 {
		return ""
	}
	return m.masters[m.of[slot]-1]
}

func (m *slotMap) set(slot int, addr string) { m.of[slot] = uint16(m.index(addr) + 1) }

// has reports whether addr is how the cluster calls one of its servers. By any other name, a host's for example, a
// server may be any of them.
func (m *slotMap) has(addr string) bool {
	return slices.Contains(m.masters, addr) || slices.Contains(m.replicas, addr)
}

func (m *slotMap) index(addr string) int {
	i := slices.Index(m.masters, addr)
	if i < 0 {
		i = len(m.masters)
		m.masters = append(m.masters, addr)
	}
	return i
}

// give gives the slots from lo to hi to addr.
func (m *slotMap) give(lo, hi int, addr string) error {
	if lo < 0 || hi >= slotCount || lo > hi {
		return fmt.Errorf("slots %d to %d", lo, hi)
	}
	master := uint16(m.index(addr) + 1)
	for slot := lo; slot <= hi; slot++ {
		m.of[slot] = master
	}
	return nil
}

// replaced reports whether a master of slots in m has none in next.
func (m *slotMap) replaced(next *slotMap) bool {
	return slices.ContainsFunc(m.masters, func(addr string) bool {
		return !slices.ContainsFunc(next.masters, func(as string) bool { return m.same(addr, next, as) })
	})
}

// same reports whether the server at addr in m is the one at as in next: by its id, if its address has
// changed.
func (m *slotMap) same(addr string, next *slotMap, as string) bool {
	return addr == as || m.ids[addr] != "" && m.ids[addr] == next.ids[as]
}

func (m *slotMap) name(addr, id string) {
	if m.ids == nil {
		m.ids = map[string]string{}
	}
	m.ids[addr] = id
}

var errEmpty = errors.New("it knows of no server that has slots")

// slotMap asks the server at addr, over a new connection: a pooled one may be as dead as its server.
func (s *Source) slotMap(ctx context.Context, addr string) (*slotMap, error) {
	asked := time.Now()
	c, err := s.o.Dial(ctx, addr)
	if err != nil {
		return nil, limit.Dialled(err)
	}
	defer c.Close()
	v := via{ctx: ctx}
	reply, err := v.do(c, "CLUSTER", "SLOTS")
	var m *slotMap
	if _, refused := err.(redis.Error); refused {
		// A user that may not, an early 3.0: the older command tells the same.
		if reply, err = v.do(c, "CLUSTER", "NODES"); err == nil {
			m, err = parseNodes(reply, addr)
		}
	} else if err == nil {
		m, err = parseSlots(reply, addr)
	}
	if err != nil {
		return nil, err
	}
	if len(m.masters) == 0 {
		return nil, errEmpty
	}
	if m.has(addr) { // else it may be any of them, and speak of itself
		s.names(addr, asked, m.masters...)
	}
	return m, nil
}

// parseSlots reads the reply to CLUSTER SLOTS: of each range its first and last
// slot, its master and its replicas, as address, port and more.
func parseSlots(reply any, from string) (*slotMap, error) {
	ranges, err := redis.Values(reply, nil)
	if err != nil {
		return nil, err
	}
	m := new(slotMap)
	for _, r := range ranges {
		fields, err := redis.Values(r, nil)
		if err != nil || len(fields) < 3 {
			return nil, fmt.Errorf("CLUSTER SLOTS: a range of %d fields, %v", len(fields), err)
		}
		lo, err := redis.Int(fields[0], nil)
		if err != nil {
			return nil, fmt.Errorf("CLUSTER SLOTS: %w", err)
		}
		hi, err := redis.Int(fields[1], nil)
		if err != nil {
			return nil, fmt.Errorf("CLUSTER SLOTS: %w", err)
		}
		for i, node := range fields[2:] {
			addr, err := nodeAddr(node, from)
			switch {
			case err != nil:
				return nil, fmt.Errorf("CLUSTER SLOTS: %w", err)
			case addr == "": // it has not heard yet where that one is
			case i > 0:
				m.addReplica(addr)
			default:
				if err := m.give(lo, hi, addr); err != nil {
					return nil, fmt.Errorf("CLUSTER SLOTS: %w", err)
				}
				m.name(addr, nodeID(node))
			}
		}
	}
	return m, nil
}

// nodeID returns the id of a node in CLUSTER SLOTS; "" before 4.0.
func nodeID(node any) string {
	fields, _ := redis.Values(node, nil)
	if len(fields) < 3 {
		return ""
	}
	id, _ := redis.String(fields[2], nil)
	return id
}

func (m *slotMap) addReplica(addr string) {
	if !slices.Contains(m.replicas, addr) {
		m.replicas = append(m.replicas, addr)
	}
}

// nodeAddr returns the address of a node in CLUSTER SLOTS. No host means that of the server that was asked, "?" that
// nobody knows it (both 7.0).
func nodeAddr(node any, from string) (string, error) {
	fields, err := redis.Values(node, nil)
	if err != nil || len(fields) < 2 {
		return "", fmt.Errorf("a node of %d fields, %v", len(fields), err)
	}
	host, err := redis.String(fields[0], nil)
	if err != nil && !errors.Is(err, redis.ErrNil) {
		return "", err
	}
	port, err := redis.Int(fields[1], nil)
	if err != nil {
		return "", err
	}
	return hostPort(host, strconv.Itoa(port), from), nil
}

func hostPort(host, port, from string) string {
	switch host {
	case "?":
		return ""
	case "":
		host, _, _ = net.SplitHostPort(from)
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}

// parseNodes reads the reply to CLUSTER NODES, a line for each:
//
//	id host:port@bus,name flags master ping pong epoch link 0-5460 5462 [5461->-id]
//
// A slot in brackets is on its way; the line that has it without them serves it.
func parseNodes(reply any, from string) (*slotMap, error) {
	text, err := redis.String(reply, nil)
	if err != nil {
		return nil, err
	}
	m := new(slotMap)
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 8 {
			return nil, fmt.Errorf("CLUSTER NODES: %.80q", line)
		}
		addr, _, _ := strings.Cut(fields[1], "@")
		addr, ok := splitAddr(addr, from)
		flags := strings.Split(fields[2], ",")
		if !ok || addr == "" || slices.Contains(flags, "noaddr") || slices.Contains(flags, "fail") {
			continue
		}
		if !slices.Contains(flags, "master") {
			m.addReplica(addr)
			continue
		}
		for _, r := range fields[8:] {
			if strings.HasPrefix(r, "[") {
				continue
			}
			first, last, isRange := strings.Cut(r, "-")
			if !isRange {
				last = first
			}
			lo, err1 := strconv.Atoi(first)
			hi, err2 := strconv.Atoi(last)
			if err := errors.Join(err1, err2); err != nil {
				return nil, fmt.Errorf("CLUSTER NODES: %w", err)
			}
			if err := m.give(lo, hi, addr); err != nil {
				return nil, fmt.Errorf("CLUSTER NODES: %w", err)
			}
			m.name(addr, fields[0])
		}
	}
	return m, nil
}

// splitAddr reads host:port as the servers write it. An IPv6 address stands there without brackets; no host means that
// of the server that says it.
func splitAddr(addr, from string) (string, bool) {
	i := strings.LastIndexByte(addr, ':')
	if i < 0 || i == len(addr)-1 {
		return "", false
	}
	if _, err := strconv.ParseUint(addr[i+1:], 10, 16); err != nil {
		return "", false
	}
	return hostPort(addr[:i], addr[i+1:], from), true
}
