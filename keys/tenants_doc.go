package keys

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// tenantsDoc is a list of tenants as lines that can be moved about: what is not edited keeps every byte.
type tenantsDoc struct {
	lines []docLine
}

// docLine is one line. The zero entry is a blank line or a comment.
type docLine struct {
	raw   []byte // with its line end
	entry docEntry
}

// docEntry says whose line it is: one of the three is set. It is comparable, and no two lines of a good list have the same.
type docEntry struct {
	tenant string
	key    PublicKey
	token  TokenID
}

// newTenantsDoc takes apart a content and what it parsed to.
func newTenantsDoc(content []byte, parsed *Tenants) *tenantsDoc {
	entries := make(map[int]docEntry)
	for _, tenant := range parsed.list {
		entries[tenant.Line] = docEntry{tenant: tenant.Name}
	}
	for _, member := range parsed.members {
		entries[member.Line] = docEntry{key: member.Key}
	}
	for _, join := range parsed.joins {
		entries[join.Line] = docEntry{token: join.ID}
	}
	doc := &tenantsDoc{}
	for raw := range bytes.Lines(content) {
		doc.lines = append(doc.lines, docLine{raw: raw, entry: entries[len(doc.lines)+1]})
	}
	return doc
}

// content puts the lines together; it is never nil.
func (d *tenantsDoc) content() []byte {
	content := []byte{}
	for _, line := range d.lines {
		content = append(endLine(content), line.raw...)
	}
	return content
}

// find returns the place of an entry's line, or -1.
func (d *tenantsDoc) find(entry docEntry) int {
	if entry == (docEntry{}) {
		return -1 // every comment has it
	}
	return slices.IndexFunc(d.lines, func(line docLine) bool { return line.entry == entry })
}

// section returns the places of a tenant's first line, of the one after its last entry, and of the next tenant's line (or the
// end of the file).
func (d *tenantsDoc) section(tenant string) (start, end, next int, found bool) {
	start = d.find(docEntry{tenant: tenant})
	if start < 0 {
		return 0, 0, 0, false
	}
	end = start + 1
	for next = start + 1; next < len(d.lines) && d.lines[next].entry.tenant == ""; next++ {
		if d.lines[next].entry != (docEntry{}) {
			end = next + 1
		}
	}
	return start, end, next, true
}

// addTenant opens a section at the end.
func (d *tenantsDoc) addTenant(tenant Tenant) {
	d.lines = append(d.lines, docLine{[]byte(tenant.line() + "\n"), docEntry{tenant: tenant.Name}})
}

// removeTenant removes a section with all its lines and the comments inside. The comment lines just above the next tenant's
// line are about that one and stay.
func (d *tenantsDoc) removeTenant(tenant string) bool {
	start, end, next, found := d.section(tenant)
	if !found {
		return false
	}
	if next < len(d.lines) {
		for next > end && bytes.HasPrefix(bytes.TrimLeft(d.lines[next-1].raw, " \t"), []byte("#")) {
			next--
		}
	}
	d.lines = slices.Delete(d.lines, start, next)
	return true
}

// put sets the line of an entry: in place of the one that it has in this section, or else below the last entry of the section.
// A line that the entry has in another section goes.
func (d *tenantsDoc) put(tenant string, entry docEntry, text string) bool {
	start, end, next, found := d.section(tenant)
	if !found {
		return false
	}
	if at := d.find(entry); at > start && at < next {
		d.lines[at].raw = []byte(text + lineEnd(d.lines[at].raw))
		return true
	}
	d.lines = slices.Insert(d.lines, end, docLine{[]byte(text + "\n"), entry})
	for at, line := range d.lines {
		if line.entry == entry && at != end {
			d.lines = slices.Delete(d.lines, at, at+1)
			break
		}
	}
	return true
}

// remove removes the line of an entry.
func (d *tenantsDoc) remove(entry docEntry) bool {
	at := d.find(entry)
	if at < 0 {
		return false
	}
	d.lines = slices.Delete(d.lines, at, at+1)
	return true
}

// tenantLine writes a tenant as its line and refuses what would not be read as the same. So do memberLine and joinLine.
func tenantLine(tenant Tenant) (string, error) {
	line := tenant.line()
	tenant.Line = 1
	parsed, err := ParseTenants("line", strings.NewReader(line))
	if err != nil || len(parsed.list) != 1 || parsed.list[0] != tenant || len(parsed.members)+len(parsed.joins) != 0 {
		return "", orMalformed(err)
	}
	return line, nil
}

// memberLine takes the tenant from the member.
func memberLine(member Member) (string, error) {
	line := member.line()
	member.Line = 2
	parsed, err := ParseTenants("line", strings.NewReader("tenant "+member.Tenant+"\n"+line))
	if err != nil || len(parsed.members) != 1 || parsed.members[0] != member || len(parsed.list) != 1 || len(parsed.joins) != 0 {
		return "", orMalformed(err)
	}
	return line, nil
}

// joinLine takes the tenant from the token.
func joinLine(join Join) (string, error) {
	line := join.line()
	join.Line = 2
	parsed, err := ParseTenants("line", strings.NewReader("tenant "+join.Tenant+"\n"+line))
	if err != nil || len(parsed.joins) != 1 || parsed.joins[0] != join || len(parsed.list) != 1 || len(parsed.members) != 0 {
		return "", orMalformed(err)
	}
	return line, nil
}

// inTenant checks that an entry names the tenant it is put into, or none, and gives it the name.
func inTenant(field *string, tenant string) error {
	if *field != "" && *field != tenant {
		return fmt.Errorf("it names the tenant %.64q and is put into %.64q", *field, tenant)
	}
	*field = tenant
	return nil
}
