package keys

import "time"

// Tenant is one "tenant" line of a relay's lists: a group whose clients reach its executors and no others.
type Tenant struct {
	Name   string
	Limits TenantLimits
	Line   int // where it stands in its file, from 1
}

// TenantLimits bounds what the members of a tenant use together. Zero: none set, so the relay's own limits hold alone.
type TenantLimits struct {
	Connections int // open connections of members
	Executors   int // executors that may be registered at a time
	Circuits    int // open circuits between members
	Bytes       int // that its circuits carry in a second, both ways together
	Handshakes  int // of its members in a second
}

// Member is one "client" or "exec" line of a relay's lists: a peer that may use the relay.
type Member struct {
	Key    PublicKey // its kind says whether it is a client or an executor
	Name   string    // unique among the tenant's members of the kind, but see Follows
	Tenant string

	// Of an executor only:
	Token   TokenID   // the join token that it came with; zero: listed by hand
	MAC     [32]byte  // its announcement, see [AnnouncementMAC]; zero: none
	Follows PublicKey // the older key of the same executor, which may have the name too; zero: none
	Since   time.Time // when it was enrolled, in whole seconds; zero: not known

	Line int // where it stands in its file, from 1
}

// Join is one "join" line of a relay's lists: a token with which executors may still enrol. It holds no secret.
type Join struct {
	ID      TokenID
	Tenant  string
	Hash    [32]byte  // [HashJoinSecret] of the token
	Pattern string    // the names that it allows, see [MatchName]
	Uses    int       // how many executors may enrol with it, 1 to 10000
	Used    int       // how many have, 0 to Uses
	Expires time.Time // in whole seconds; nobody enrols afterwards
	By      PublicKey // the client that made it; zero: not known
	Line    int       // where it stands in its file, from 1
}

// Tenants is the content of one of a relay's lists, or of two after [Tenants.Merge]. It is immutable and safe for concurrent
// use. The zero value and nil admit nobody.
type Tenants struct {
	list   []Tenant
	byName map[string]int

	members   []Member
	byKey     map[PublicKey]int
	memberOf  map[string][]int
	memberFor map[memberName][]int // in the order of members; two at most

	joins   []Join
	byToken map[TokenID]int
	joinOf  map[string][]int
}

// memberName is what must be unique: a client and an executor may share a name, and so may members of different tenants.
type memberName struct {
	tenant string
	kind   Kind
	name   string
}

func newTenants() *Tenants {
	return &Tenants{
		byName:    make(map[string]int),
		byKey:     make(map[PublicKey]int),
		memberOf:  make(map[string][]int),
		memberFor: make(map[memberName][]int),
		byToken:   make(map[TokenID]int),
		joinOf:    make(map[string][]int),
	}
}

// Lookup returns the member with the key.
func (t *Tenants) Lookup(key PublicKey) (Member, bool) {
	if t == nil {
		return Member{}, false
	}
	i, found := t.byKey[key]
	if !found {
		return Member{}, false
	}
	return t.members[i], true
}

// Tenant returns the tenant with the name.
func (t *Tenants) Tenant(name string) (Tenant, bool) {
	if t == nil {
		return Tenant{}, false
	}
	i, found := t.byName[name]
	if !found {
		return Tenant{}, false
	}
	return t.list[i], true
}

// Join returns the join line with the token's id, whether or not the token can still be used.
func (t *Tenants) Join(id TokenID) (Join, bool) {
	if t == nil {
		return Join{}, false
	}
	i, found := t.byToken[id]
	if !found {
		return Join{}, false
	}
	return t.joins[i], true
}

// Named returns the members of the kind that have the name in the tenant, as a copy in the order of the file: none or one, or
// two of which one follows the other.
func (t *Tenants) Named(tenant string, kind Kind, name string) []Member {
	if t == nil {
		return nil
	}
	return pick(t.members, t.memberFor[memberName{tenant, kind, name}])
}

// All returns the tenants in the order of the file, as a copy.
func (t *Tenants) All() []Tenant {
	if t == nil {
		return nil
	}
	return append([]Tenant(nil), t.list...)
}

// Members returns the tenant's clients and executors in the order of the file, as a copy.
func (t *Tenants) Members(tenant string) []Member {
	if t == nil {
		return nil
	}
	return pick(t.members, t.memberOf[tenant])
}

// Joins returns the tenant's join lines in the order of the file, as a copy.
func (t *Tenants) Joins(tenant string) []Join {
	if t == nil {
		return nil
	}
	return pick(t.joins, t.joinOf[tenant])
}

// pick returns the elements at the places, as a new slice.
func pick[T any](list []T, places []int) []T {
	if len(places) == 0 {
		return nil
	}
	picked := make([]T, len(places))
	for i, place := range places {
		picked[i] = list[place]
	}
	return picked
}
