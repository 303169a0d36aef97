package keys

import (
	"fmt"
	"time"
)

// The functions in this file change one of a relay's lists in the manner of [AddKnownExecutor]: in one step, under the lock,
// keeping other lines, comments, mode and owner. A file that does not parse is left alone.

// AddTenant opens a section for a tenant at the end of the list, or creates the file with mode 0600. A tenant that is there
// with the same limits is left as it is; one with other limits is an error. The tenant's Line counts for nothing.
func AddTenant(path string, t Tenant) error {
	line, err := tenantLine(t)
	if err != nil {
		return fmt.Errorf("add tenant %.64q to %s: %w", t.Name, path, err)
	}
	return addLine(path, line, ParseTenants, func(tenants *Tenants) (bool, error) {
		old, listed := tenants.Tenant(t.Name)
		if listed && old.Limits != t.Limits {
			return false, fmt.Errorf("tenant %q is already on line %d with other limits: edit that line by hand", t.Name, old.Line)
		}
		return listed, nil
	})
}

// AddMember adds a line below the last entry of a tenant's section. A key that is there already under the same name is left as
// it is, whatever its options; a key with another name or in another tenant, a name that another member of the kind has, and a
// tenant that is not listed ([ErrNotListed]) are errors. The member's Tenant may be empty, its Line counts for nothing.
func AddMember(path, tenant string, m Member) error {
	wrap := func(err error) error { return fmt.Errorf("add %.64q to %s: %w", m.Name, path, err) }
	m = cleanMember(m)
	if err := inTenant(&m.Tenant, tenant); err != nil {
		return wrap(err)
	}
	line, err := memberLine(m)
	if err != nil {
		return wrap(err)
	}
	return rewrite(path, ParseTenants, func(content []byte, tenants *Tenants) ([]byte, error) {
		switch old, listed := tenants.Lookup(m.Key); {
		case listed && old.Tenant != tenant:
			return nil, wrap(fmt.Errorf("key %s is already on line %d, in tenant %q", m.Key.Short(), old.Line, old.Tenant))
		case listed && old.Name != m.Name:
			return nil, wrap(fmt.Errorf("key %s is already on line %d under the name %q", m.Key.Short(), old.Line, old.Name))
		case listed:
			return nil, nil
		}
		doc := newTenantsDoc(content, tenants)
		if !doc.put(tenant, docEntry{key: m.Key}, line) {
			return nil, wrap(fmt.Errorf("tenant %q: %w: add it first", tenant, ErrNotListed))
		}
		return doc.content(), nil // the parser finds a name that is taken
	})
}

// RemoveTenant removes a tenant's section with all its lines and the comments inside. A tenant that is not there is an error
// that matches [ErrNotListed].
func RemoveTenant(path, tenant string) error {
	return rewrite(path, ParseTenants, func(content []byte, tenants *Tenants) ([]byte, error) {
		doc := newTenantsDoc(content, tenants)
		if !doc.removeTenant(tenant) {
			return nil, fmt.Errorf("%s: tenant %.64q: %w", path, tenant, ErrNotListed)
		}
		return doc.content(), nil
	})
}

// RemoveMember removes the line of a client or an executor. A key that is not there is an error that matches [ErrNotListed].
func RemoveMember(path string, key PublicKey) error {
	return rewrite(path, ParseTenants, func(content []byte, tenants *Tenants) ([]byte, error) {
		member, listed := tenants.Lookup(key)
		if !listed {
			return nil, fmt.Errorf("%s: key %s: %w", path, key.Short(), ErrNotListed)
		}
		return withoutLine(content, member.Line), nil
	})
}

// cleanMember brings a member to the form in which it is read back.
func cleanMember(m Member) Member {
	m.Line = 0
	m.Since = wholeSeconds(m.Since)
	return m
}

// wholeSeconds is what a file can hold of a time.
func wholeSeconds(at time.Time) time.Time {
	if at.IsZero() {
		return time.Time{}
	}
	return time.Unix(at.Unix(), 0).UTC()
}
