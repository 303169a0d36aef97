//go:build toolchains

package executor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// registry serves the packages in a folder of tarballs on the sandbox's loopback, and runs a command with its address in
// npm_config_registry. Its port is a fixed one, as lock files remember it: each sandbox has a loopback of its own. A package whose name begins with "forged" gets another's hash.
const registry = `
const { createServer } = require('node:http')
const { createHash } = require('node:crypto')
const { readdirSync, readFileSync } = require('node:fs')
const { spawn } = require('node:child_process')

const packages = {}
for (const file of readdirSync('tarballs')) {
  const [, name, version] = /^(.*)-(\d+\.\d+\.\d+)\.tgz$/.exec(file)
  packages[name] = { file, version, bytes: readFileSync('tarballs/' + file) }
}
const seen = []
const server = createServer((request, response) => {
  seen.push(request.method + ' ' + request.url)
  const [, name, dash, file] = request.url.split('/')
  const known = packages[name]
  if (!known) {
    response.writeHead(404, { 'content-type': 'application/json' }).end('{"error":"not found"}')
  } else if (dash === '-' && file === known.file) {
    response.writeHead(200, { 'content-type': 'application/octet-stream' }).end(known.bytes)
  } else {
    const hashed = name.startsWith('forged') ? 'something else' : known.bytes
    const integrity = 'sha512-' + createHash('sha512').update(hashed).digest('base64')
    const address = 'http://127.0.0.1:' + server.address().port
    const manifest = JSON.parse(readFileSync('packages/' + name + '/package.json'))
    const dist = { integrity, tarball: address + '/' + name + '/-/' + known.file }
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({
      name, 'dist-tags': { latest: known.version }, versions: { [known.version]: { ...manifest, dist } },
    }))
  }
})
server.listen(4873, '127.0.0.1', () => {
  const address = 'http://127.0.0.1:' + server.address().port + '/'
  const [, , command, ...args] = process.argv
  const child = spawn(command, args, { stdio: 'inherit', env: { ...process.env, npm_config_registry: address } })
  child.on('exit', (code) => {
    console.error(seen.join('\n'))
    server.close()
    process.exitCode = code ?? 1
  })
})
`

// nodePackages puts three packages and their registry into the workspace: greeter depends on words, has a program, and runs a
// script when it is installed.
func nodePackages(b *bench) {
	b.t.Helper()
	b.file("registry.js", registry)
	b.file("packages/words/package.json", `{"name": "words", "version": "2.0.1", "main": "index.js"}`)
	b.file("packages/words/index.js", "module.exports = (who) => 'hello ' + who\n")
	b.file("packages/greeter/package.json", `{
  "name": "greeter", "version": "1.2.3", "bin": {"greet": "cli.js"}, "dependencies": {"words": "^2.0.0"},
  "scripts": {"postinstall": "node postinstall.js"}, "hasInstallScript": true
}`)
	b.file("packages/greeter/cli.js", "#!/usr/bin/env node\nconsole.log(require('words')(process.argv[2]), require('./built.json').by)\n")
	b.file("packages/greeter/postinstall.js", "require('fs').writeFileSync('built.json', JSON.stringify({ by: process.env.npm_lifecycle_event }))\n")
	b.file("packages/forged/package.json", `{"name": "forged", "version": "1.0.0"}`)
	b.run(`mkdir tarballs
for name in words greeter forged; do npm pack --silent --pack-destination tarballs ./packages/$name; done`)
	b.file("app/package.json", `{"name": "app", "version": "0.0.1", "private": true, "scripts": {"hello": "greet npm"}}`)
}

func TestNPMInstallsFromARegistryOnLoopback(t *testing.T) {
	b := newBench(t, "node", "npm")
	nodePackages(b)
	e := b.try("node registry.js npm install --prefix app greeter")
	if e.code != 0 || !strings.Contains(e.stderr, "GET /greeter/-/greeter-1.2.3.tgz") || !strings.Contains(e.stderr, "GET /words/-/words-2.0.1.tgz") {
		t.Fatalf("npm install: %+v", e)
	}
	b.wants("cd app && npx --offline greet npx", "hello npx postinstall")
	b.wants("cd app && npm run --silent hello", "hello npm postinstall")
	lock, err := os.ReadFile(filepath.Join(b.workspace, "app/package-lock.json"))
	if err != nil || strings.Count(string(lock), `"integrity": "sha512-`) != 2 {
		t.Errorf("package-lock.json: %v, %s", err, lock)
	}
	// From the lock file, as builds do it.
	b.wants("cp -r app copy && rm -r copy/node_modules && node registry.js npm ci --silent --prefix copy && cd copy && npm run --silent hello", "hello npm postinstall")
	b.wants("npm config get cache", "/run/postern/home/.npm")
}

func TestNPMRefusesAPackageWithAnotherHash(t *testing.T) {
	b := newBench(t, "node", "npm")
	nodePackages(b)
	if e := b.try("node registry.js npm install --fetch-retries=0 --prefix app forged"); e.code == 0 || !strings.Contains(e.stderr, "EINTEGRITY") {
		t.Errorf("npm install: %+v", e)
	}
}

// What node asks the system for beyond files: threads, child processes with channels, watchers, sockets of both kinds.
func TestNodeWorkersChildrenAndWatchersWork(t *testing.T) {
	b := newBench(t, "node")
	b.file("parts.js", `
const { Worker, isMainThread, parentPort } = require('node:worker_threads')
const { fork } = require('node:child_process')
const { mkdtempSync, watch, writeFileSync } = require('node:fs')
const net = require('node:net'), os = require('node:os'), path = require('node:path')

async function main() {
  const worker = new Worker(__filename)
  console.log(await new Promise((done) => worker.once('message', done)))
  const child = fork(__filename, ['child'])
  console.log(await new Promise((done) => child.once('message', done)))
  const folder = mkdtempSync(path.join(os.tmpdir(), 'node-'))
  const watcher = watch(folder)
  const event = new Promise((done) => watcher.once('change', (_, name) => done('saw ' + name)))
  writeFileSync(path.join(folder, 'file'), '')
  console.log(await event)
  watcher.close()
  for (const where of [path.join(folder, 'socket'), 0]) {
    const server = net.createServer((s) => s.end(typeof where === 'string' ? 'unix' : 'tcp'))
    await new Promise((done) => server.listen(where, done))
    const at = server.address()
    const s = net.connect(typeof at === 'string' ? at : { port: at.port, host: 'localhost' })
    console.log(await new Promise((done) => s.once('data', (d) => done(String(d)))))
    server.close()
  }
  console.log(os.userInfo().homedir, Object.keys(os.networkInterfaces()).join())
}

if (!isMainThread) parentPort.postMessage('worker')
else if (process.argv[2] === 'child') { process.send('child'); process.disconnect() }
else main()
`)
	b.wants("node parts.js", "worker\nchild\nsaw file\nunix\ntcp\n/run/postern/home lo")
}
