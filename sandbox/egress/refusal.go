package egress

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"
)

// answer is how a failed request is told to the client.
type answer struct {
	status int
	line   string // plain ASCII, one line
	token  string // for the Proxy-Status field, RFC 9209 section 2.3
	socks  byte   // RFC 1928 section 6
}

// explain makes the answer to a request that has failed with the reason. The words
// "blocked by the sandbox policy" are only in those that the policy is the reason of.
func (p *Proxy) explain(d Decision, cause error) answer {
	blocked := func(why string) answer {
		return answer{
			http.StatusForbidden, "blocked by the sandbox policy: " + why, "http_request_denied", socksNotAllowed,
		}
	}
	failed := func(status int, token string, socks byte, format string, args ...any) answer {
		return answer{status, "sandbox proxy: " + fmt.Sprintf(format, args...), token, socks}
	}
	allowed := "; allowed: " + p.rules.shown()
	timeout := (&failure{cause: cause}).timeout()
	switch d.Reason {
	case NoRule:
		return blocked(d.Destination() + " is not in the list of allowed hosts" + allowed)
	case PortNotAllowed:
		return blocked(fmt.Sprintf("port %d of %s is not in the list of allowed hosts%s", d.Port, d.Host, allowed))
	case NotAName:
		return blocked("only host names can be reached, no addresses" + allowed)
	case PrivateAddress:
		a := blocked(d.Destination() + " leads to a private or reserved address")
		a.token = "destination_ip_prohibited"
		return a
	case TooMany:
		return failed(http.StatusServiceUnavailable, "connection_limit_reached", socksFailure,
			"too many connections at once: close some and try again")
	case NotResolved:
		if timeout {
			return failed(http.StatusGatewayTimeout, "dns_timeout", socksHostUnreachable, "%s: the name server did not answer in time", d.Destination())
		}
		return failed(http.StatusBadGateway, "dns_error", socksHostUnreachable, "%s: the name does not resolve", d.Destination())
	case DialFailed:
		switch {
		case timeout:
			return failed(http.StatusGatewayTimeout, "connection_timeout", socksHostUnreachable, "%s did not answer in time", d.Destination())
		case errors.Is(cause, syscall.ECONNREFUSED):
			return failed(http.StatusBadGateway, "connection_refused", socksRefused, "%s refused the connection", d.Destination())
		}
		return failed(http.StatusBadGateway, "destination_unavailable", socksHostUnreachable, "%s cannot be reached", d.Destination())
	case Malformed:
		return failed(http.StatusBadRequest, "http_request_error", socksFailure,
			"this is a proxy: ask for an absolute http:// URL without a user name, or for CONNECT HOST:PORT without a body")
	}
	// The connection stood, but the answer was none.
	if timeout {
		return failed(http.StatusGatewayTimeout, "http_response_timeout", socksFailure, "%s did not answer in time", d.Destination())
	}
	return failed(http.StatusBadGateway, "http_response_incomplete", socksFailure, "%s closed the connection or gave an answer that is not HTTP", d.Destination())
}
