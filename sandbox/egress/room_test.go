package egress

import (
	"net"
	"testing"
)

func TestRoomIsOfAllItsProxiesTogether(t *testing.T) {
	server := echo(t)
	house := NewRoom(3, nil)
	in := func(r *Room) func(*Options) { return func(o *Options) { o.Room = r } }
	one, two := newWorld(t, "a.example:"+port(server), in(NewRoom(2, house))), newWorld(t, "a.example:"+port(server), in(NewRoom(2, house)))
	ask := func(w *world) int {
		resp, _ := w.raw(t, "CONNECT a.example:"+port(server)+" HTTP/1.1\r\n\r\n")
		return resp.StatusCode
	}
	conns := []net.Conn{openTunnel(t, one, server), openTunnel(t, one, server)}
	if got := ask(one); got != 503 {
		t.Errorf("one more than its room: %d", got)
	}
	conns = append(conns, openTunnel(t, two, server))
	if got := ask(two); got != 503 {
		t.Errorf("one more than the room around: %d", got)
	}
	for _, c := range conns {
		c.Close()
	}
	one.proxy.Close() // waits until they are gone
	openTunnel(t, two, server).Close()
	two.proxy.Close()
	if house.left != 3 {
		t.Errorf("room for %d is left, want 3", house.left)
	}
}
