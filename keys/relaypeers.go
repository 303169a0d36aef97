package keys

import (
	"errors"
	"fmt"
	"io"
	"slices"
)

// RelayPeer is one line of a relay's authorized file: a client or an executor that may use the relay.
type RelayPeer struct {
	Key  PublicKey // its kind says which of the two it is
	Name string    // unique among the peers of its kind
}

// RelayPeers is the content of a relay's authorized file. It is immutable and safe for concurrent use. The zero value and nil
// admit nobody.
type RelayPeers struct {
	list  []RelayPeer
	byKey map[PublicKey]int
}

// peerName is what must be unique: a client and an executor may share a name.
type peerName struct {
	kind Kind
	name string
}

// ParseRelayPeers reads the peers that a relay admits, one a line: "client KEY NAME" or "exec KEY NAME". Blank lines and
// lines that start with # are passed over. The name is that of the file, for errors. One bad line refuses the whole file, as
// does a key that is listed twice or a name that two peers of one kind share.
func ParseRelayPeers(name string, r io.Reader) (*RelayPeers, error) {
	peers := &RelayPeers{byKey: make(map[PublicKey]int)}
	names := make(map[peerName]bool)
	err := eachLine(name, r, func(_ int, line string) error {
		peer, err := parseRelayPeer(line)
		if err != nil {
			return err
		}
		if _, taken := peers.byKey[peer.Key]; taken {
			return fmt.Errorf("key %s is listed twice", peer.Key.Short())
		}
		unique := peerName{peer.Key.Kind(), peer.Name}
		if names[unique] {
			return fmt.Errorf("name %q is already that of another %s", peer.Name, peer.Key.Kind())
		}
		names[unique] = true
		peers.byKey[peer.Key] = len(peers.list)
		peers.list = append(peers.list, peer)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return peers, nil
}

// parseRelayPeer reads one line.
func parseRelayPeer(line string) (RelayPeer, error) {
	columns := fields(line)
	kind := Kind(columns[0])
	if kind != Client && kind != Executor {
		return RelayPeer{}, errors.New(`line starts with neither "client" nor "exec": want client KEY NAME or exec KEY NAME`)
	}
	if len(columns) != 3 {
		return RelayPeer{}, fmt.Errorf("line has %d fields: want %s KEY NAME", len(columns), kind)
	}
	key, err := parseKeyOf(kind, columns[1])
	if err != nil {
		return RelayPeer{}, err
	}
	if err := checkName(columns[2]); err != nil {
		return RelayPeer{}, err
	}
	return RelayPeer{Key: key, Name: columns[2]}, nil
}

// Lookup returns the line that admits key.
func (p *RelayPeers) Lookup(key PublicKey) (RelayPeer, bool) {
	if p == nil {
		return RelayPeer{}, false
	}
	i, found := p.byKey[key]
	if !found {
		return RelayPeer{}, false
	}
	return p.list[i], true
}

// All returns the peers in the order of the file, as a copy.
func (p *RelayPeers) All() []RelayPeer {
	if p == nil {
		return nil
	}
	return slices.Clone(p.list)
}
