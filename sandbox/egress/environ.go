package egress

import "net/netip"

// Environ returns the variables, as KEY=value, with which a command finds a proxy that
// listens at the address. Loopback goes past the proxy: the command has one of its own.
//
// Why these: curl takes http_proxy in lower case only, wget and apt all of theirs, and Go
// and others look at upper case first, so there are both. ALL_PROXY is http and not
// socks5h, because Python's httpx fails as it starts on a SOCKS address there without an
// extra module, whatever else is set, while all that know the variable know http. Node
// has NODE_USE_ENV_PROXY since version 24 (and 22.21), older ones need a package. Yarn
// from version 2 on has its own two, and ends with an error at any other name after YARN_,
// such as YARN_NO_PROXY. The list of exceptions has no address ranges, which older
// versions of many tools do not know. git, npm, pip, cargo, and what is made with libcurl,
// need no more.
//
// Java knows no such variables. What would make it use the proxy, JAVA_TOOL_OPTIONS, has
// each Java program print a line of its own, and replaces what the command may have set;
// who wants it sets -Dhttps.proxyHost and -Dhttps.proxyPort there, in MAVEN_OPTS or in
// GRADLE_OPTS. Tools that speak SOCKS, such as ssh with a ProxyCommand, find it at the same
// address, and must leave the names to it (socks5h).
func Environ(proxy netip.AddrPort) []string {
	url := "http://" + proxy.String()
	const direct = "localhost,127.0.0.1,::1"
	return []string{
		"HTTP_PROXY=" + url, "http_proxy=" + url,
		"HTTPS_PROXY=" + url, "https_proxy=" + url,
		"ALL_PROXY=" + url, "all_proxy=" + url,
		"NO_PROXY=" + direct, "no_proxy=" + direct,
		"NODE_USE_ENV_PROXY=1",
		"YARN_HTTP_PROXY=" + url, "YARN_HTTPS_PROXY=" + url,
	}
}
