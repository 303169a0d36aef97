//go:build toolchains

package executor

import (
	"strings"
	"testing"
)

// pythonPackages puts a wheel and a source distribution into the workspace's folder "dist". The latter is its own build
// backend, so that nothing has to be downloaded to build it.
func pythonPackages(b *bench) {
	b.t.Helper()
	b.file("backend.py", `
import base64, hashlib, os, tarfile, zipfile

def wheel(folder, name, source):
    dist = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": source,
        f"{dist}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{dist}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{dist}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text)}\n"
    file = f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, file), "w") as z:
        for path, text in files.items():
            z.writestr(path, text)
        z.writestr(f"{dist}/RECORD", record + f"{dist}/RECORD,,\n")
    return file

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return wheel(wheel_directory, "sourced", open("sourced.py").read())

if __name__ == "__main__":
    os.makedirs("dist")
    wheel("dist", "wheeled", "def main():\n    print('from a wheel')\n")
    with tarfile.open("dist/sourced-1.0.tar.gz", "w:gz") as t:
        for file in ("backend.py", "sourced.py", "pyproject.toml", "PKG-INFO"):
            t.add(file, f"sourced-1.0/{file}")
`)
	b.file("sourced.py", "def main():\n    print('from source')\n")
	b.file("PKG-INFO", "Metadata-Version: 2.1\nName: sourced\nVersion: 1.0\n")
	b.file("pyproject.toml", "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n")
	b.run("python3 backend.py")
}

func TestPythonMakesAVirtualEnvironmentAndInstallsWithoutAnIndex(t *testing.T) {
	b := newBench(t, "python3")
	pythonPackages(b)
	e := b.try("python3 -m venv env && env/bin/pip --disable-pip-version-check install --no-index dist/*.whl dist/*.tar.gz")
	if e.code != 0 {
		t.Fatalf("pip install: %+v", e)
	}
	b.wants("env/bin/wheeled; env/bin/sourced; . env/bin/activate; pip list --format freeze --disable-pip-version-check | grep 1.0$", "from a wheel\nfrom source\nsourced==1.0\nwheeled==1.0")
	b.wants("env/bin/pip cache dir; ls -d $HOME", "/run/postern/home/.cache/pip\n/run/postern/home")
	// The virtual environment stays in the workspace for the next command.
	b.wants("env/bin/python -c 'import sys, sourced; print(sys.prefix != sys.base_prefix)'", "True")
	e = b.try("env/bin/pip --disable-pip-version-check install --retries 0 postern-no-such-package")
	if e.code == 0 || !strings.Contains(e.stderr, "postern-no-such-package") {
		t.Errorf("pip install from an index that cannot be reached: %+v", e)
	}
}

func TestPythonMultiprocessingWorks(t *testing.T) {
	b := newBench(t, "python3")
	b.file("parts.py", `
import multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import shared_memory

def square(n):
    return n * n

def fill(name, gate, full):
    memory = shared_memory.SharedMemory(name=name)
    gate.acquire()
    memory.buf[:5] = b"hello"
    memory.close()
    full.release()

def main():
    for method in ("fork", "spawn", "forkserver"):
        context = mp.get_context(method)
        with context.Pool(4) as pool:
            print(method, sum(pool.map(square, range(100))))
        memory = shared_memory.SharedMemory(create=True, size=1 << 20)
        gate, full = context.Semaphore(0), context.BoundedSemaphore(1)
        full.acquire()
        child = context.Process(target=fill, args=(memory.name, gate, full))
        child.start()
        gate.release()
        full.acquire()
        print(bytes(memory.buf[:5]).decode())
        child.join()
        memory.close()
        memory.unlink()
        queue = context.Queue()
        child = context.Process(target=queue.put, args=("queued",))
        child.start()
        print(queue.get(), child.join())
    with mp.Manager() as manager, ProcessPoolExecutor(2) as pool:
        shared = manager.dict()
        shared["sum"] = sum(pool.map(square, range(10)))
        print(dict(shared))

if __name__ == "__main__":
    main()
`)
	part := func(method string) string { return method + " 328350\nhello\nqueued None\n" }
	b.wants("python3 parts.py; ls /dev/shm | wc -l", part("fork")+part("spawn")+part("forkserver")+"{'sum': 285}\n0")
}
