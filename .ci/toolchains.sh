# The stage "toolchains": what people build with, run for real inside the sandbox, by root's executor and by an ordinary user's.
# Sourced after ordinary-user.sh.
#
# The tests have the build tag toolchains, so that no other stage needs the tools. Here a tool that is missing is a failure.

# Programs that the tests call, each with the Debian package that has it. Only what is missing is installed: a machine may have
# its own node or Java.
toolchain_programs=(
	gcc:gcc make:make git:git python3:python3 node:nodejs npm:npm cargo:cargo javac:default-jdk-headless chromium:chromium
	wget:wget strace:strace gdb:gdb sudo:sudo ssh:openssh-client ps:procps
)
# Packages without a program of their own, each with a file by which one sees that it is there.
toolchain_files=(/usr/include/stdio.h:libc6-dev)

stage_toolchains() {
	[[ $(id -u) == 0 ]] || die "the stage toolchains runs its tests as root and as uid $user_id, which needs root"
	ordinary_tree
	install_toolchains
	run go vet -tags toolchains ./executor
	run go run "$staticcheck" -tags toolchains ./executor
	local go_folder
	go_folder=$(dirname "$(readlink -f "$(command -v go)")")
	as_user "$work/tree" test -x "$go_folder/go" || die "uid $user_id cannot run $go_folder/go: install Go where everybody can enter"
	run go test -c -tags toolchains -o "$work/tree/executor/toolchains.test" ./executor
	chmod 0755 "$work/tree/executor/toolchains.test"
	local tests root user command
	tests=$(sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/\1/p' executor/toolchain*_test.go | paste -s -d '|')
	command=(env "PATH=$go_folder:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" CI=true
		./toolchains.test -test.v=test2json -test.timeout=5m -test.run "^($tests)\$")
	printf '+ as root in executor: ./toolchains.test\n'
	toolchain_tests root env --chdir "$work/tree/executor" "${command[@]}"
	printf '+ as uid %s in executor: ./toolchains.test\n' "$user_id"
	toolchain_tests user as_user "$work/tree/executor" "${command[@]}"
	root=$(passed "$work/toolchains-root" executor)
	user=$(passed "$work/toolchains-user" executor)
	printf '%d tests of tools passed as root, %d as an ordinary user\n' "$root" "$user"
	((root > 0 && root == user)) || die "not every test of tools ran as both"
}

# toolchain_tests runs a command in the tree, as it is given, records what the tests say and prints what failed. A test binary
# that panics or runs out of time ends without a result of the test that ran: then its last lines tell.
toolchain_tests() {
	local name=$1
	shift
	rm -f "$work/toolchains-$name"
	"$@" 2>&1 | tee "$work/toolchains-raw" | go tool test2json -p "$module/executor" |
		"$testlog" -module "$module" -record "$work/toolchains-$name" && return 0
	tail -n 40 "$work/toolchains-raw"
	die "the tests of tools failed as $name"
}

install_toolchains() {
	local pair packages=()
	for pair in "${toolchain_programs[@]}"; do
		# What stands in a folder of root's alone is none for the sandbox.
		as_user / bash -c 'command -v "$1" >/dev/null' - "${pair%%:*}" || packages+=("${pair#*:}")
	done
	as_user / python3 -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv)
	for pair in "${toolchain_files[@]}"; do
		[[ -e ${pair%%:*} ]] || packages+=("${pair#*:}")
	done
	((${#packages[@]})) || return 0
	printf 'missing: %s\n' "${packages[*]}"
	retry apt-get update -q
	retry env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${packages[@]}"
}
