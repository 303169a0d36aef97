package keys

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// line writes the tenant as its line in a list, without the line end.
func (t Tenant) line() string {
	words := []string{"tenant", t.Name}
	for _, limit := range []struct {
		name   string
		number int
	}{{"conns", t.Limits.Connections}, {"execs", t.Limits.Executors}, {"circuits", t.Limits.Circuits}, {"handshakes/s", t.Limits.Handshakes}} {
		if limit.number != 0 {
			words = append(words, limit.name+"="+strconv.Itoa(limit.number))
		}
	}
	if t.Limits.Bytes != 0 {
		words = append(words, "bytes/s="+FormatRate(t.Limits.Bytes))
	}
	return strings.Join(words, " ")
}

// line writes the member as its line in a list, without the line end.
func (m Member) line() string {
	words := []string{string(m.Key.Kind()), m.Key.String(), m.Name}
	if !m.Token.IsZero() {
		words = append(words, "token="+m.Token.String())
	}
	if m.MAC != ([32]byte{}) {
		words = append(words, "mac="+hex.EncodeToString(m.MAC[:]))
	}
	if !m.Follows.IsZero() {
		words = append(words, "follows="+m.Follows.String())
	}
	if !m.Since.IsZero() {
		words = append(words, "since="+strconv.FormatInt(m.Since.Unix(), 10))
	}
	return strings.Join(words, " ")
}

// line writes the token as its line in a list, without the line end.
func (j Join) line() string {
	words := []string{
		"join", j.ID.String(), hashPrefix + hex.EncodeToString(j.Hash[:]), "name=" + j.Pattern,
		"uses=" + strconv.Itoa(j.Uses), "used=" + strconv.Itoa(j.Used), "expires=" + formatTime(j.Expires),
	}
	if !j.By.IsZero() {
		words = append(words, "by="+j.By.String())
	}
	return strings.Join(words, " ")
}
