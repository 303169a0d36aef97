//go:build toolchains

package executor

import (
	"image"
	"image/color"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-relay/postern/wire"
)

// chromium takes a screenshot of a page. --no-sandbox turns off Chromium's own sandbox, which wants namespaces of its own and
// so cannot work in another one; this one confines the browser and everything it starts.
const chromium = "chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=400,300 --virtual-time-budget=5000 --screenshot=page.png "

// page is a red field with a blue one in it that only its script makes wide enough, a picture from the same server, and a word.
const page = `<!doctype html><meta charset="utf-8"><title>page</title>
<style>body { margin: 0; background: #cc0000 } #field { position: absolute; left: 100px; top: 100px; width: 1px; height: 100px; background: #0000cc }
img { position: absolute; left: 300px; top: 200px; width: 50px; height: 50px } p { position: absolute; left: 20px; top: 0; color: white; font-size: 40px }</style>
<div id="field"></div><img src="picture.svg"><p>WORD</p>
<script>document.getElementById('field').style.width = '100px'</script>
`

const picture = `<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"><rect width="10" height="10" fill="#00cc00"/></svg>`

func TestChromiumShowsPagesOfTheWorkspaceAndOfLoopback(t *testing.T) {
	for name, script := range map[string]string{
		"file": chromium + "file://$PWD/site/page.html",
		"loopback": `python3 -u -m http.server --bind 127.0.0.1 --directory site 8000 > server.log 2>&1 &
until grep -q Serving server.log; do kill -0 $!; done
` + chromium + `http://127.0.0.1:8000/page.html
kill $!`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "chromium", "python3")
			b.file("site/page.html", page)
			b.file("site/picture.svg", picture)
			b.run(script)
			f, err := os.Open(filepath.Join(b.workspace, "page.png"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			checkPicture(t, f)
		})
	}
}

// A page that nobody trusts needs no workspace to write.
func TestChromiumShowsAPageInReadOnlyMode(t *testing.T) {
	b := newBench(t, "chromium")
	b.file("site/page.html", page)
	b.file("site/picture.svg", picture)
	script := strings.Replace(chromium, "page.png", "/tmp/page.png", 1) + "file://$PWD/site/page.html >&2; cat /tmp/page.png"
	e := b.start(wire.ExecParams{Argv: []string{"sh", "-euc", script}, Sandbox: wire.SandboxReadOnly}, nil)
	if e.code != 0 {
		t.Fatalf("chromium: %d %s", e.code, e.stderr)
	}
	checkPicture(t, strings.NewReader(e.stdout))
}

// checkPicture looks whether the page is there, with what its script, its second file and its font add to it.
func checkPicture(t *testing.T, f io.Reader) {
	t.Helper()
	shot, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	if size := shot.Bounds().Size(); size != image.Pt(400, 300) {
		t.Fatalf("the picture has %v pixels", size)
	}
	red, green, blue, white := color.RGBA{0xcc, 0, 0, 0xff}, color.RGBA{0, 0xcc, 0, 0xff}, color.RGBA{0, 0, 0xcc, 0xff}, color.RGBA{0xff, 0xff, 0xff, 0xff}
	for at, want := range map[image.Point]color.RGBA{{390, 10}: red, {150, 150}: blue, {198, 102}: blue, {210, 150}: red, {325, 225}: green} {
		if got := color.RGBAModel.Convert(shot.At(at.X, at.Y)); got != want {
			t.Errorf("at %v it is %v, want %v", at, got, want)
		}
	}
	letters := 0
	for x := range 200 {
		for y := range 95 {
			if color.RGBAModel.Convert(shot.At(x, y)) == white {
				letters++
			}
		}
	}
	if letters < 100 || letters > 10_000 {
		t.Errorf("%d pixels of text", letters)
	}
}

// Chromium's own sandbox is refused by this one, and says what to do.
func TestChromiumNamesTheFlagThatItNeeds(t *testing.T) {
	b := newBench(t, "chromium")
	b.file("site/page.html", page)
	e := b.try(strings.Replace(chromium, "--no-sandbox ", "", 1) + "file://$PWD/site/page.html")
	if e.code == 0 || !strings.Contains(e.stderr, "sandbox") {
		t.Errorf("chromium without --no-sandbox: %+v", e)
	}
}
