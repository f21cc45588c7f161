// Package ui holds the built web UI. Its sources are in /ui at the root of the
// repository; `make ui` builds them into dist, which is committed so that a
// build of the product needs no npm.
package ui

import (
	"embed"
	"io/fs"
)

//go:generate go run ../../ui -from ../../ui -to dist

//go:embed dist
var dist embed.FS

// Files returns the built files: index.html, app.js, app.css, the scripts that come with it and those that come later, a file of words
// for each language, icon.svg and the licences of the libraries in them; in docs, the page on which the API is tried. But for app.js,
// a script has the hash of what it holds in its name.
func Files() fs.FS {
	sub, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // the embedded folder has this name
	}
	return sub
}
