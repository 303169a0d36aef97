package keys

import "fmt"

// TenantsEdit is a change to a list of tenants that [RewriteTenants] applies as a whole. It is for one goroutine, and of no
// use after the function that got it has returned.
type TenantsEdit struct {
	before *Tenants
	doc    *tenantsDoc
}

// RewriteTenants reads a relay's list, lets change edit it and writes it back, in one atomic step: nobody else changes the file
// in between, and after an error, of change or because the result would not parse, it is as it was. A missing file is created
// with mode 0600; its folder must exist. While change runs, other changes of files in this process wait, so it must not make
// any itself. What is not edited keeps every byte. It is safe for concurrent use, and on Unix by several processes.
func RewriteTenants(path string, change func(*TenantsEdit) error) error {
	return rewrite(path, ParseTenants, func(content []byte, tenants *Tenants) ([]byte, error) {
		edit := &TenantsEdit{before: tenants, doc: newTenantsDoc(content, tenants)}
		if err := change(edit); err != nil {
			return nil, err
		}
		return edit.doc.content(), nil
	})
}

// Before returns the list as it was when the edit began.
func (e *TenantsEdit) Before() *Tenants { return e.before }

// SetMember adds a member to a tenant, or puts it in the place of the line that its key has, and opens a section where there is
// none. Its Tenant may be empty, its Line counts for nothing. That a name is taken shows at the end of the edit.
func (e *TenantsEdit) SetMember(tenant string, m Member) error {
	m = cleanMember(m)
	err := inTenant(&m.Tenant, tenant)
	var line string
	if err == nil {
		line, err = memberLine(m)
	}
	if err != nil {
		return fmt.Errorf("set member %.64q of tenant %.64q: %w", m.Name, tenant, err)
	}
	e.put(tenant, docEntry{key: m.Key}, line)
	return nil
}

// SetJoin adds a token to a tenant, or puts it in the place of the line that its id has, and opens a section where there is
// none. Its Tenant may be empty, its Line counts for nothing.
func (e *TenantsEdit) SetJoin(tenant string, j Join) error {
	j.Line = 0
	j.Expires = wholeSeconds(j.Expires)
	err := inTenant(&j.Tenant, tenant)
	var line string
	if err == nil {
		line, err = joinLine(j)
	}
	if err != nil {
		return fmt.Errorf("set join token %s of tenant %.64q: %w", j.ID, tenant, err)
	}
	e.put(tenant, docEntry{token: j.ID}, line)
	return nil
}

// put is doc.put with a section that is opened when there is none.
func (e *TenantsEdit) put(tenant string, entry docEntry, line string) {
	if !e.doc.put(tenant, entry, line) {
		e.doc.addTenant(Tenant{Name: tenant})
		e.doc.put(tenant, entry, line)
	}
}

// RemoveMember removes the line of a key and reports whether there was one.
func (e *TenantsEdit) RemoveMember(key PublicKey) bool {
	return e.doc.remove(docEntry{key: key})
}

// RemoveJoin removes the line of a token and reports whether there was one.
func (e *TenantsEdit) RemoveJoin(id TokenID) bool {
	return e.doc.remove(docEntry{token: id})
}

// RemoveTenant removes a tenant's section with all its lines and the comments inside, and reports whether there was one.
func (e *TenantsEdit) RemoveTenant(tenant string) bool {
	return e.doc.removeTenant(tenant)
}
