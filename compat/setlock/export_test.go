package setlock

// Scripts are the scripts' names by their hashes.
func Scripts() map[string]string {
	return map[string]string{take.Hash(): "take", extend.Hash(): "extend", release.Hash(): "release"}
}
