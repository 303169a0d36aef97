//go:build toolchains

package executor

import (
	"strings"
	"testing"
)

const javaProgram = `
import java.lang.management.ManagementFactory;
import java.nio.file.*;
import java.util.stream.*;

public class Parts {
    public static void main(String[] args) throws Exception {
        Runtime runtime = Runtime.getRuntime();
        long most = runtime.maxMemory() >> 20;
        byte[][] blocks = new byte[64][];
        for (int i = 0; i < blocks.length; i++) {
            blocks[i] = new byte[2 << 20];
            blocks[i][i] = 1;
        }
        System.out.println("sum " + IntStream.range(0, 100000).parallel().asLongStream().sum());
        System.out.println("heap " + (most >= 128) + " " + (runtime.totalMemory() >= 128L << 20));
        Path counters = Path.of("/tmp/hsperfdata_" + System.getProperty("user.name"), Long.toString(ProcessHandle.current().pid()));
        System.out.println("counters " + (Files.size(counters) > 0));
        System.out.println("home " + System.getProperty("user.home") + " tmp " + System.getProperty("java.io.tmpdir"));
        System.out.println("name " + ManagementFactory.getRuntimeMXBean().getName().split("@")[0].equals("" + ProcessHandle.current().pid()));
        Process process = new ProcessBuilder("jcmd", "" + ProcessHandle.current().pid(), "VM.version").redirectErrorStream(true).start();
        String answer = new String(process.getInputStream().readAllBytes());
        System.out.println("attach " + process.waitFor() + " " + answer.contains("JDK"));
        Path file = Files.createTempFile("parts", ".txt");
        Files.writeString(file, "é");
        System.out.println("text " + Files.readString(file) + " " + java.nio.charset.Charset.defaultCharset());
    }
}
`

func TestJavaCompilesAndRunsWithItsHeapCountersAndTools(t *testing.T) {
	b := newBench(t, "javac", "java", "jcmd")
	b.file("Parts.java", javaProgram)
	e := b.try("javac -d out Parts.java && java -cp out Parts")
	want := []string{
		"sum 4999950000", "heap true true", "counters true", "home /run/postern/home tmp /tmp", "name true", "attach 0 true", "text é UTF-8",
	}
	if got := strings.Split(strings.TrimSpace(e.stdout), "\n"); e.code != 0 || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("java ended with %d and printed %q, want %q; stderr: %s", e.code, got, want, e.stderr)
	}
	if e.stderr != "" {
		t.Errorf("it complains: %s", e.stderr)
	}
}

func TestJarRunsFromTheWorkspace(t *testing.T) {
	b := newBench(t, "javac", "jar", "java")
	b.file("Hello.java", `public class Hello { public static void main(String[] a) { System.out.println("hello " + a[0]); } }`)
	b.wants("javac -d out Hello.java && jar --create --file hello.jar --main-class Hello -C out . && java -jar hello.jar jar", "hello jar")
	b.wants("java Hello.java source", "hello source")
}

// A heap that is full is Java's own error, not the end of the process by a signal.
func TestJavaHeapThatIsTooSmallIsAnOutOfMemoryError(t *testing.T) {
	b := newBench(t, "javac", "java")
	b.file("Eat.java", `public class Eat { public static void main(String[] a) { byte[][] all = new byte[256][]; for (int i = 0; i < 256; i++) all[i] = new byte[1 << 20]; } }`)
	if e := b.try("javac -d out Eat.java && java -Xmx64m -cp out Eat"); e.code != 1 || !strings.Contains(e.stderr, "java.lang.OutOfMemoryError: Java heap space") {
		t.Errorf("java: %+v", e)
	}
}
