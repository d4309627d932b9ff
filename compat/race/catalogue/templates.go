package catalogue

// A Template is a lock to begin one's own with.
type Template struct {
	Name   string `json:"name"`   // "SETNX and EXPIRE"
	Says   string `json:"says"`   // what it shows
	Text   string `json:"text"`   // its lines ([Form])
	Lock   string `json:"lock"`   // the name of an algorithm
	Server string `json:"server"` // one that has its commands
}

// Templates returns the usual locks, from the first ones to today's. All are asked for on 7.0 but the
// last.
func Templates() []Template {
	const set = "SET KEY TOKEN NX PX TTLMS\nOK = mine\nrelease\n"
	list := []Template{
		{Name: "SETNX and EXPIRE", Says: "two commands: who dies between them locks for ever, and DEL looks at nothing",
			Text: "SETNX KEY TOKEN\n0 = held\nEXPIRE KEY TTL\n1 = mine\nrelease\nDEL KEY"},
		{Name: "GETSET", Says: "the time at which the lease ends is the value: no TTL, and whoever finds it past takes over",
			Text: "SETNX KEY TIME\n1 = mine\nGET KEY\nlater = held\nnil = held\nGETSET KEY TIME\npast = mine\nnil = mine\nelse = held\nrelease\nDEL KEY"},
		{Name: "SET NX PX and DEL", Says: "one command takes it; DEL removes whatever is there, also another's lock", Text: set + "DEL KEY"},
		{Name: "SET NX PX, compare and DEL", Says: "GET looks first; between GET and DEL the lock can become another's", Text: set + "GET KEY\nown = next\nelse = lost\nDEL KEY"},
		{Name: "SET NX PX and WATCH", Says: "the DEL runs only if nothing has touched the key since GET",
			Text: set + "WATCH KEY\nGET KEY\nown = next\nelse = lost\nMULTI\nDEL KEY\nEXEC\nnil = lost"},
		{Name: "SET NX PX and a script", Says: "the server compares and deletes in one step", Text: set + compareAndDelete + " KEY TOKEN\n0 = lost"},
		{Name: "SET NX PX and IFEQ", Says: "the same without a script, on a server that has the command", Server: "8.6", Text: set + "DELEX KEY IFEQ TOKEN\n0 = lost"},
	}
	for i := range list {
		t := &list[i]
		t.Lock = FormName(t.Text)
		if t.Server == "" {
			t.Server = "7.0"
		}
	}
	return list
}
