// Package roster knows who may use a relay.
//
// Every peer is a member of one tenant, by its key. Two files of one format say so (keys.ParseTenants):
// `tenants` is the operator's, who lists tenants with their limits and members by hand; the relay never writes
// it. `enrolled` is the relay's own: the join tokens that clients have made, how often each was used, and the
// executors that have joined. What is in force is the merge of the two, in which the operator's word wins. A key
// is out when it is in neither: who removes its line from one must look for it in the other.
//
// Data flow. [Open] reads both files, [Roster.Run] follows their changes, and [Roster.Current] is the merge, which
// readers take without waiting. [Roster.Join] decides on an executor with a join token; [Roster.AddToken],
// [Roster.RemoveToken], [Roster.Follow] and [Roster.Retire] carry out what members ask for. All of these rewrite `enrolled` under
// its lock, in one step and synced to disk, before they return: a use that was not counted was not granted. A
// tenant has one change under way at a time, so that none waits for all those of another. The operator may edit `enrolled`
// too; a count of uses that goes down by that gives no use back while the relay runs.
//
// The roster decides with the relay's clock and knows no connections: whoever runs it closes those of members that are gone.
package roster
