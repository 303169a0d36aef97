package relay

import (
	"github.com/postern-relay/postern/wire"
)

// The label values. They are a closed set: no key, name, address or version ever is one.
const (
	roleUnknown = "unknown" // before the peer has said what it is

	resultOK         = "ok"
	resultBadAuth    = "bad_auth"    // no valid handshake: garbage, another relay key, a middle
	resultUnknownKey = "unknown_key" // a proven key that is not admitted
	resultVersion    = "version"
	resultTimeout    = "timeout"
	resultLimited    = "limited"
	resultDuplicate  = "duplicate"
	resultJoin       = "join"  // a join token that is not good
	resultError      = "error" // the connection broke, or the hello made no sense

	// Why a connection ended, as the relay sees it.
	endPeer       = "peer_closed"
	endLost       = "lost" // silent for too long, or its process restarted
	endSuperseded = "superseded"
	endRevoked    = "revoked"
	endShutdown   = "shutdown" // the relay's
	endProtocol   = "protocol"

	// Limits that can be reached. Those of package quicconn come on top.
	limitHandshakes        = "handshakes"
	limitTenantHandshakes  = "tenant_handshakes"
	limitKeyConnections    = "key_connections"
	limitTenantConnections = "tenant_connections"
	limitTenantExecutors   = "tenant_executors"
	limitKeyCircuits       = "key_circuits"
	limitTenantCircuits    = "tenant_circuits"
	limitExecutorCircuits  = "executor_circuits"
	limitTenantBytes       = "tenant_bytes"
	limitKeyBytes          = "key_bytes"
	limitKeyHandshakes     = "key_handshakes"

	toExecutor = "to_executor"
	toClient   = "to_client"

	causeSameInstance  = "same_instance"
	causeDeadIncumbent = "dead_incumbent"
)

var (
	roles             = []string{wire.RoleExecutor: "executor", wire.RoleClient: "client"}
	disconnectReasons = []string{endPeer, endLost, endSuperseded, endRevoked, endShutdown, endProtocol}
	limitNames        = []string{
		limitHandshakes, limitTenantHandshakes, limitKeyConnections, limitTenantConnections, limitTenantExecutors,
		limitKeyCircuits, limitTenantCircuits, limitExecutorCircuits, limitTenantBytes, limitKeyBytes, limitKeyHandshakes,
	}
	results = []string{resultOK, resultBadAuth, resultUnknownKey, resultVersion, resultTimeout, resultLimited, resultDuplicate, resultJoin, resultError}
)

// roleName is the label value of a role.
func roleName(r wire.Role) string {
	if int(r) < len(roles) && roles[r] != "" {
		return roles[r]
	}
	return roleUnknown
}

// codeName is the label value of a code; peers may send numbers that are none.
func codeName(c wire.Code) string {
	switch {
	case c == 0:
		return resultOK
	case c.Known():
		return c.String()
	}
	return "other"
}
