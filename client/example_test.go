package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/wiretest"
)

// connected is the backend of an executor in the same process, whose few commands live in
// memory. A program has instead:
//
//	c, err := client.Dial(ctx, client.Config{Key: key, Relay: relayURL})
//	...
//	backend := c.Executor(executorKey)
func connected() (backend wire.ExecBackend, closeAll func()) {
	me, err := keys.Generate(keys.Client)
	check(err)
	it, err := keys.Generate(keys.Executor)
	check(err)
	clients, err := keys.ParseAuthorizedClients("authorized_clients", strings.NewReader(me.Public().String()))
	check(err)
	local, err := executor.NewLocal(executor.LocalConfig{Runner: new(executortest.Runner)})
	check(err)
	e, err := executor.New(executor.Config{
		Key: it, Clients: func() *keys.AuthorizedClients { return clients }, Backend: local,
	})
	check(err)
	ctx, cancel := context.WithCancel(context.Background())
	var circuits sync.WaitGroup
	remote := client.NewRemote(client.RemoteConfig{
		Key: me, Executor: it.Public(),
		OpenCircuit: func(context.Context) (wire.Stream, error) {
			ours, theirs := wiretest.Pipe()
			circuits.Go(func() { e.ServeCircuit(ctx, theirs, me.Public().Raw()) })
			return ours, nil
		},
	})
	return remote, func() {
		remote.Close()
		cancel()
		circuits.Wait()
		local.Close()
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleCmd_Output() {
	backend, closeAll := connected()
	defer closeAll()
	vm := client.Environment{Name: "vm", Backend: backend}

	out, err := vm.Command("echo", "words, $not a shell's").Output(context.Background())
	fmt.Printf("%s%v\n", out, err)
	// Output:
	// words, $not a shell's
	// <nil>
}

// A command that fails is told apart from one whose outcome nobody knows.
func ExampleCmd_Run() {
	backend, closeAll := connected()
	defer closeAll()
	vm := client.Environment{Name: "vm", Backend: backend}

	err := vm.Command("exit", "3").Run(context.Background())
	failed, ok := errors.AsType[*client.ExitError](err)
	switch {
	case err == nil:
		fmt.Println("done")
	case ok:
		fmt.Println("it ran:", failed.Status)
	case errors.Is(err, wire.ErrLost):
		fmt.Println("nobody knows, until somebody attaches:", err)
	default:
		fmt.Println("it did not run:", err)
	}
	err = vm.Command("no-such-command").Run(context.Background())
	fmt.Println("it did not run:", err)
	// Output:
	// it ran: exit status 3
	// it did not run: no-such-command: command not found
}

func ExampleCmd_Start() {
	backend, closeAll := connected()
	defer closeAll()
	ctx := context.Background()

	cmd := client.Environment{Name: "vm", Backend: backend}.Command("cat")
	cmd.Params.Timeout = time.Minute // on the executor's clock, whatever happens here
	cmd.Stdin, cmd.Stdout = strings.NewReader("from here and back\n"), os.Stdout
	check(cmd.Start(ctx))
	status, err := cmd.Wait(ctx)
	fmt.Println(status, err)
	// Output:
	// from here and back
	// exit status 0 <nil>
}

// A command belongs to the executor, not to the handle: whoever closes one can come back.
func ExampleRemote_Attach() {
	backend, closeAll := connected()
	defer closeAll()
	ctx := context.Background()

	p, err := backend.Start(ctx, wire.ExecParams{Argv: []string{"sleep", "10ms", "still here"}})
	check(err)
	check(p.Close())

	p, err = backend.Attach(ctx, p.ID(), wire.AttachOptions{Control: true})
	check(err)
	for e, err := range p.Events(ctx, 0) {
		check(err)
		if e.Chunk != nil {
			fmt.Printf("%s", e.Chunk.Data)
		}
		if e.Exit != nil {
			fmt.Println(e.Exit)
		}
	}
	check(p.Close())
	// Output:
	// still here
	// exit status 0
}
