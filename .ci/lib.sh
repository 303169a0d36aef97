# Shared by .ci/run and its stages; sourced, not run.

# say prints a line that stands out among the output of tools.
say() { printf '\n=== %s\n' "$*"; }

# die ends the run with a reason.
die() {
	printf 'ci: %s\n' "$*" >&2
	exit 1
}

# run prints a command, then runs it.
run() {
	printf '+ %s\n' "${*@Q}"
	"$@"
}

# run_silent runs a command that must succeed and print nothing: a difference is a failure, whatever the tool's exit code.
run_silent() {
	local output
	printf '+ %s   (must print nothing)\n' "${*@Q}"
	output=$("$@" 2> >(grep -v '^go: downloading ' >&2)) || die "failed: $* ${output:+($output)}"
	[[ -z $output ]] || die "output of $*:"$'\n'"$output"
}

# retry runs a command up to four times with growing pauses; for the network only.
retry() {
	local pause
	for pause in 2 5 10 none; do
		if run "$@"; then return 0; fi
		if [[ $pause != none ]]; then
			printf 'ci: again in %s s\n' "$pause"
			sleep "$pause"
		fi
	done
	return 1
}

# have tells whether the module has a package, by its path inside the module.
have() { grep -qxF "$module/$1" <<<"$all_packages"; }
