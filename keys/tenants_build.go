package keys

import (
	"cmp"
	"fmt"
	"slices"
)

// addTenant, addMember and addJoin extend a list under construction and refuse what would be there twice. Line numbers in
// their errors are those of the same file.

func (t *Tenants) addTenant(tenant Tenant) error {
	if first, taken := t.byName[tenant.Name]; taken {
		return fmt.Errorf("tenant %q is already on line %d: put its lines there", tenant.Name, t.list[first].Line)
	}
	t.byName[tenant.Name] = len(t.list)
	t.list = append(t.list, tenant)
	return nil
}

func (t *Tenants) addMember(member Member) error {
	if first, taken := t.byKey[member.Key]; taken {
		return fmt.Errorf("key %s is already on line %d", member.Key.Short(), t.members[first].Line)
	}
	unique := memberName{member.Tenant, member.Key.Kind(), member.Name}
	if other, taken := t.nameTaken(member); taken {
		return fmt.Errorf("name %q is already that of another %s of tenant %q, on line %d",
			member.Name, unique.kind, member.Tenant, other.Line)
	}
	place := len(t.members)
	t.byKey[member.Key] = place
	t.memberOf[member.Tenant] = append(t.memberOf[member.Tenant], place)
	t.memberFor[unique] = append(t.memberFor[unique], place)
	t.members = append(t.members, member)
	return nil
}

// nameTaken returns the member that keeps another from its name. An executor that changes its key has two for a while; a
// third would be one that the second change forgot to remove.
func (t *Tenants) nameTaken(member Member) (other Member, taken bool) {
	holders := t.memberFor[memberName{member.Tenant, member.Key.Kind(), member.Name}]
	for _, place := range holders {
		holder := t.members[place]
		related := member.Follows == holder.Key || holder.Follows == member.Key
		if !related || len(holders) > 1 {
			return holder, true
		}
	}
	return Member{}, false
}

func (t *Tenants) addJoin(join Join) error {
	if first, taken := t.byToken[join.ID]; taken {
		return fmt.Errorf("token %s is already on line %d", join.ID, t.joins[first].Line)
	}
	place := len(t.joins)
	t.byToken[join.ID] = place
	t.joinOf[join.Tenant] = append(t.joinOf[join.Tenant], place)
	t.joins = append(t.joins, join)
	return nil
}

// Merge returns what the operator has listed (t) together with what the relay has enrolled, which stays out where the two
// disagree. Of the enrolled tenants only the names count. Left out are members and tokens of a tenant that the operator does
// not list, a member whose name the operator has given to another key of the kind (unless one of the two follows the other), one that follows a
// key which is not in force,
// and a token whose id the operator has given to another; for each of them there is an error, one line for the log. A key that
// both list is the operator's, without an error, with the token that it has joined with since. So is a token, with the higher
// count of uses: the relay counts the uses of the operator's tokens in its own list. Neither list changes.
func (t *Tenants) Merge(enrolled *Tenants) (*Tenants, []error) {
	merged := newTenants()
	if t != nil {
		for _, tenant := range t.list {
			_ = merged.addTenant(tenant) // what came from a list holds nothing twice
		}
		for _, member := range t.members {
			_ = merged.addMember(member)
		}
		for _, join := range t.joins {
			_ = merged.addJoin(join)
		}
	}
	if enrolled == nil {
		return merged, nil
	}
	var leftOut []error
	byAge := slices.Clone(enrolled.members) // what others follow comes first
	slices.SortStableFunc(byAge, func(a, b Member) int {
		return cmp.Compare(followsSomebody(a), followsSomebody(b))
	})
	for _, member := range byAge {
		if err := merged.mergeMember(member); err != nil {
			leftOut = append(leftOut, fmt.Errorf("enrolled %s %q (%s) is left out: %w", member.Key.Kind(), member.Name, member.Key.Short(), err))
		}
	}
	for _, join := range enrolled.joins {
		if err := merged.mergeJoin(join); err != nil {
			leftOut = append(leftOut, fmt.Errorf("join token %s is left out: %w", join.ID, err))
		}
	}
	return merged, leftOut
}

func followsSomebody(m Member) int {
	if m.Follows.IsZero() {
		return 0
	}
	return 1
}

func (t *Tenants) mergeMember(member Member) error {
	if place, listed := t.byKey[member.Key]; listed {
		// What the operator has written stays; that the executor has joined with a token since is news.
		if own := &t.members[place]; own.Tenant == member.Tenant && own.Name == member.Name && own.Token.IsZero() {
			own.Token, own.MAC, own.Since = member.Token, member.MAC, member.Since
		}
		return nil
	}
	if _, listed := t.byName[member.Tenant]; !listed {
		return fmt.Errorf("there is no tenant %q any more", member.Tenant)
	}
	if _, in := t.byKey[member.Follows]; !in && !member.Follows.IsZero() { // whoever removed that key meant this one too
		return fmt.Errorf("the key that it is to replace, %s, is not listed any more", member.Follows.Short())
	}
	if holder, taken := t.nameTaken(member); taken {
		return fmt.Errorf("in tenant %q the name is that of %s", member.Tenant, holder.Key.Short())
	}
	return t.addMember(member)
}

func (t *Tenants) mergeJoin(join Join) error {
	place, listed := t.byToken[join.ID]
	if !listed {
		if _, listed := t.byName[join.Tenant]; !listed {
			return fmt.Errorf("there is no tenant %q any more", join.Tenant)
		}
		return t.addJoin(join)
	}
	own := &t.joins[place]
	if own.Hash != join.Hash || own.Tenant != join.Tenant {
		return fmt.Errorf("its id is that of another token, of tenant %q", own.Tenant)
	}
	// The operator may have lowered the uses below what was counted.
	own.Used = min(max(own.Used, join.Used), own.Uses)
	return nil
}
