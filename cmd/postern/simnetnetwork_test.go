package main

import (
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go/testutils/simnet"
)

// network loses packets at random, and all packets of hosts that are down. A host can get another
// address in the middle of everything.
type network struct {
	simnet.PerfectRouter

	mu    sync.Mutex
	port  int
	nets  []*simnet.Simnet
	conns []*simnet.SimConn
	down  map[byte]bool
	loss  float64
	rand  *rand.Rand
	// What the address of a socket that was moved looks like from elsewhere, and the way back.
	outside, inside map[string]*net.UDPAddr
	passed          func(from byte) // sees every packet that is not lost
}

func newNetwork() *network {
	return &network{down: make(map[byte]bool), outside: make(map[string]*net.UDPAddr), inside: make(map[string]*net.UDPAddr)}
}

// socket is a new one of a host.
func (n *network) socket(host byte) net.PacketConn {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.port++
	s := &simnet.Simnet{Router: n}
	c := s.NewEndpoint(&net.UDPAddr{IP: net.IPv4(192, 0, 2, host), Port: n.port}, simnet.NodeBiDiLinkSettings{Latency: oneWay})
	s.Start() // cannot fail
	n.nets, n.conns = append(n.nets, s), append(n.conns, c)
	return c
}

func (n *network) close() {
	for i := range n.nets {
		n.conns[i].Close()
		n.nets[i].Close()
	}
}

func (n *network) SendPacket(p simnet.Packet) error {
	n.mu.Lock()
	lost := n.loss > 0 && n.rand.Float64() < n.loss
	for _, a := range []net.Addr{p.From, p.To} {
		lost = lost || n.down[hostOf(a)]
	}
	if moved := n.outside[p.From.String()]; moved != nil {
		p.From = moved
	}
	if socket := n.inside[p.To.String()]; socket != nil {
		p.To = socket
	} else {
		lost = lost || n.outside[p.To.String()] != nil // nobody has this address any more
	}
	passed := n.passed
	n.mu.Unlock()
	if lost {
		return nil
	}
	if passed != nil {
		passed(hostOf(p.From))
	}
	return n.PerfectRouter.SendPacket(p)
}

func hostOf(a net.Addr) byte {
	ip := a.(*net.UDPAddr).IP
	return ip[len(ip)-1]
}

// move gives every socket of a host another address, without its knowing: it has changed networks, or
// a NAT in between has forgotten it.
func (n *network) move(host byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		socket := c.LocalAddr().(*net.UDPAddr)
		if hostOf(socket) != host {
			continue
		}
		n.port++
		moved := &net.UDPAddr{IP: net.IPv4(198, 51, 100, host), Port: n.port}
		if old := n.outside[socket.String()]; old != nil {
			delete(n.inside, old.String())
		}
		n.outside[socket.String()], n.inside[moved.String()] = moved, socket
	}
}

// setDown takes a host from the network, or back.
func (n *network) setDown(host byte, down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down[host] = down
}

func (n *network) lose(share float64, seed uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loss, n.rand = share, rand.New(rand.NewPCG(seed, 7))
}

// nextFrom gets the time when the next packet of a host passes.
func (n *network) nextFrom(host byte) <-chan time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := make(chan time.Time, 1)
	n.passed = func(from byte) {
		if from == host {
			select {
			case at <- time.Now():
			default: // it was told already
			}
		}
	}
	return at
}
