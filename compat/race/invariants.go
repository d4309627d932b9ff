package race

// Invariants returns the names of all invariants.
//
//	exclusion    at no moment do two clients hold the lock, each by its own clock
//	fencing      the storage accepts no write from a holder once a newer one has written; needs a fence to hold
//	ownership    no client removes or changes another's lock while its lease lasts; what reports success has succeeded
//	progress     when all clients are idle or dead, a client can acquire within Config.Within
//	accuracy     ErrLost if and only if the lock was lost; ErrHeld only if a client, or an attempt that is over, held it; unknown only if a message was lost
//	fence-order  fences grow in the order of acquisition
//	fairness     a client that goes on asking is served within as many turns as there are clients; needs Config.Wait
//
// Two readers may hold a lock at once. If a lock's holders are in several keys, or several in one
// key, ownership covers only the removal of another's value, not changes beside it. The order of
// acquisition is the order in which the clients get their replies. Over several servers ownership
// is not checked; of accuracy, only that no client is refused without a holder and that nothing is
// unknown without a loss. For fairness, a turn counts when another client came in between two
// attempts of a waiting client and the second attempt was refused: a client that does not ask is
// not passed over.
func Invariants() []string {
	return []string{"exclusion", "fencing", "ownership", "progress", "accuracy", "fence-order", "fairness"}
}
