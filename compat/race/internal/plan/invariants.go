package plan

// Invariants returns the names of all invariants. Package race says what they are.
func Invariants() []string {
	return []string{"exclusion", "fencing", "ownership", "progress", "accuracy", "fence-order", "fairness"}
}
