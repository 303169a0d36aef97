package keys_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/postern-relay/postern/keys"
)

// A daemon makes its key on the first start and finds it again on the next.
func ExampleLoadOrGenerate() {
	dir, err := os.MkdirTemp("", "keys")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "key")
	for range 2 {
		key, created, err := keys.LoadOrGenerate(path, keys.Executor)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(key, "new:", created)
	}
	// Output:
	// (exec private key, redacted) new: true
	// (exec private key, redacted) new: false
}

// A relay is never written without its key.
func ExampleParseRelayURL() {
	relay, err := keys.ParseRelayURL("postern://relay.example.com:4433#relay_aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyydenbwha5dypt2qi")
	fmt.Println(relay.Address(), relay.Key.Kind(), err)
	_, err = keys.ParseRelayURL("postern://relay.example.com:4433")
	fmt.Println(err)
	// Output:
	// relay.example.com:4433 relay <nil>
	// relay URL has no key: want postern://HOST:PORT#relay_KEY, as the relay prints it
}

// An option that this version does not know refuses the whole file: to pass over it would allow more than was written.
func ExampleParseAuthorizedClients() {
	const file = `# who may run commands here
client_aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyydenbwha5dyprxdq alice
frob=2027-01-01 client_aeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaea5ynq ci
`
	clients, err := keys.ParseAuthorizedClients("authorized_clients", strings.NewReader(file))
	fmt.Println(clients.All(), err)
	// Output:
	// [] authorized_clients:3: unknown option "frob": nothing in this file is in force until it is removed
}
