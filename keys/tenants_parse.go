package keys

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	maxTenantLimit = 1_000_000
	maxTokenUses   = 10_000

	// hashPrefix says what the hash of a join line is, so that another may follow it one day.
	hashPrefix = "sha256:"
)

// ParseTenants reads one of a relay's lists. A line "tenant NAME" opens a section, to which the lines after it belong:
//
//	tenant NAME     [conns=N] [execs=N] [circuits=N] [bytes/s=N] [handshakes/s=N]
//	client KEY NAME
//	exec   KEY NAME [token=ID] [mac=HEX] [follows=OLD-KEY] [since=UNIX-SECONDS]
//	join   ID sha256:HEX [name=PATTERN] [uses=N] [used=N] [by=CLIENT-KEY] expires=TIME
//
// Without name= every name is allowed, without uses= a token serves once; the time is RFC 3339 in UTC. Blank lines and lines
// that start with # are passed over. The name is that of the file, for errors. One bad line refuses the whole file, as does a
// tenant that is named twice, a key or a token that is listed twice, or a name that two members of one kind share in one
// tenant: only an executor's key whose line says that it follows the other's may share a name with it, and no third.
func ParseTenants(name string, r io.Reader) (*Tenants, error) {
	tenants := newTenants()
	err := eachLine(name, r, func(number int, line string) error {
		if err := refuseSecret(line); err != nil {
			return err
		}
		return tenants.addLine(number, fields(line))
	})
	if err != nil {
		return nil, err
	}
	return tenants, nil
}

// addLine parses one line and adds it to the section that is open.
func (t *Tenants) addLine(number int, columns []string) error {
	if columns[0] == "tenant" {
		tenant, err := parseTenant(columns)
		if err != nil {
			return err
		}
		tenant.Line = number
		return t.addTenant(tenant)
	}
	var add func(tenant string) error
	switch columns[0] {
	case string(Client), string(Executor):
		member, err := parseMember(columns)
		if err != nil {
			return err
		}
		member.Line = number
		add = func(tenant string) error {
			member.Tenant = tenant
			return t.addMember(member)
		}
	case "join":
		join, err := parseJoin(columns)
		if err != nil {
			return err
		}
		join.Line = number
		add = func(tenant string) error {
			join.Tenant = tenant
			return t.addJoin(join)
		}
	default:
		return errors.New("line starts with none of tenant, client, exec and join")
	}
	if len(t.list) == 0 {
		return fmt.Errorf("%s line stands before the first tenant line: put it below the tenant that it belongs to", columns[0])
	}
	return add(t.list[len(t.list)-1].Name)
}

// parseTenant reads the columns of a tenant line.
func parseTenant(columns []string) (Tenant, error) {
	if len(columns) < 2 {
		return Tenant{}, errors.New("tenant line has no name: want tenant NAME")
	}
	tenant := Tenant{Name: columns[1]}
	if err := checkName(tenant.Name); err != nil {
		return Tenant{}, err
	}
	err := readOptions(columns[2:], setters{
		"conns":    numberInto(&tenant.Limits.Connections, 1, maxTenantLimit),
		"execs":    numberInto(&tenant.Limits.Executors, 1, maxTenantLimit),
		"circuits": numberInto(&tenant.Limits.Circuits, 1, maxTenantLimit),

		"bytes/s":      rateInto(&tenant.Limits.Bytes),
		"handshakes/s": numberInto(&tenant.Limits.Handshakes, 1, maxTenantLimit),
	})
	return tenant, err
}

// parseMember reads the columns of a client or exec line.
func parseMember(columns []string) (Member, error) {
	kind := Kind(columns[0])
	if len(columns) < 3 {
		return Member{}, fmt.Errorf("line has %d fields: want %s KEY NAME", len(columns), kind)
	}
	key, err := parseKeyOf(kind, columns[1])
	if err != nil {
		return Member{}, err
	}
	member := Member{Key: key, Name: columns[2]}
	if err := checkName(member.Name); err != nil {
		return Member{}, err
	}
	options := setters{}
	if kind == Executor {
		options = executorOptions(&member)
	}
	return member, readOptions(columns[3:], options)
}

// executorOptions are those of an exec line. A value that stands for "none" in a Member is refused: left out, it says the same.
func executorOptions(member *Member) setters {
	return setters{
		"token": func(value string) (err error) {
			member.Token, err = ParseTokenID(value)
			return err
		},
		"mac": func(value string) error {
			if err := hexInto(&member.MAC)(value); err != nil {
				return err
			}
			if member.MAC == ([32]byte{}) {
				return errors.New("the all-zero MAC is nobody's")
			}
			return nil
		},
		"follows": func(value string) error {
			if err := keyInto(&member.Follows, Executor)(value); err != nil {
				return err
			}
			if member.Follows == member.Key {
				return errors.New("a key cannot follow itself")
			}
			return nil
		},
		"since": func(value string) error {
			var seconds int64
			if err := numberInto(&seconds, 1, lastSecond)(value); err != nil {
				return err
			}
			member.Since = time.Unix(seconds, 0).UTC()
			return nil
		},
	}
}

// parseJoin reads the columns of a join line.
func parseJoin(columns []string) (Join, error) {
	if len(columns) < 3 {
		return Join{}, fmt.Errorf("line has %d fields: want join ID sha256:HEX expires=TIME", len(columns))
	}
	id, err := ParseTokenID(columns[1])
	if err != nil {
		return Join{}, err
	}
	join := Join{ID: id, Pattern: wildcard, Uses: 1}
	hash, ok := strings.CutPrefix(columns[2], hashPrefix)
	if !ok || decodeHex(join.Hash[:], hash) != nil {
		return Join{}, errors.New("the token's hash is malformed: want sha256: and 64 lower-case hex digits")
	}
	err = readOptions(columns[3:], setters{
		"name":    patternInto(&join.Pattern),
		"uses":    numberInto(&join.Uses, 1, maxTokenUses),
		"used":    numberInto(&join.Used, 0, maxTokenUses),
		"expires": timeInto(&join.Expires),
		"by":      keyInto(&join.By, Client),
	})
	switch {
	case err != nil:
		return Join{}, err
	case join.Expires.IsZero():
		return Join{}, errors.New("join line does not say when the token expires: add expires=TIME, as expires=2026-12-01T00:00:00Z")
	case join.Used > join.Uses:
		return Join{}, fmt.Errorf("token is used %d times, which is more than its %d uses", join.Used, join.Uses)
	}
	return join, nil
}
