// Package egress says what a sandboxed command may reach over the network, and holds it
// to that: Rules is the list of host names and ports, Proxy the only way out for a
// command that has no network of its own. It opens no listener, starts no command and
// knows nothing of who asked; whoever runs the command makes a listener inside its
// network namespace and gives it to Proxy.Serve. Start reading at Proxy.reach.
//
// # What one request goes through
//
//  1. The name and port are read strictly (name.go) and looked for in the rules. A name
//     that is not in them is never looked up, so that names cannot carry data out.
//  2. The name is resolved, once. If any of its addresses is private or reserved
//     (address.go), or belongs to this machine, the request is refused.
//  3. One of those addresses is dialled, never the name again, so that a second answer
//     of the name server changes nothing.
//
// The listener speaks HTTP CONNECT, plain HTTP and SOCKS5 at once; the first byte tells.
//
// # What is promised
//
// An empty list allows nothing, and so does the zero value of everything. The policy of a
// Proxy never changes. Addresses of the machine's own networks are out of reach but for
// those that its owner permits, and metadata services even then. What a request carried
// is neither kept nor logged, only host, port and verdict (Decision).
//
// # What is not
//
// The proxy does not look into TLS. What an allowed host does with what it is sent is its
// own affair: a public host that takes uploads takes secrets too, and one that serves
// many names (a content network) may serve another than the one that was allowed. Lists
// should be short. Other protocols than TCP do not pass.
package egress
