// A server of ours on Go's net/http and net/http/cgi, as one writes it in an afternoon:
// programs under /cgi-bin/, files everywhere else.
//
//	gocgi ADDRESS SITE
package main

import (
	"log"
	"net/http"
	"net/http/cgi"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: gocgi ADDRESS SITE")
	}
	address, site := os.Args[1], os.Args[2]
	http.Handle("/", http.FileServer(http.Dir(filepath.Join(site, "public"))))
	http.HandleFunc("/cgi-bin/", func(w http.ResponseWriter, r *http.Request) {
		name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/cgi-bin/"), "/")
		if name == "" || strings.HasPrefix(name, ".") {
			http.NotFound(w, r)
			return
		}
		program := cgi.Handler{
			Path: filepath.Join(site, "cgi-bin", name),
			Root: "/cgi-bin/" + name,
			Dir:  filepath.Join(site, "cgi-bin"),
		}
		program.ServeHTTP(w, r)
	})
	log.Fatal(http.ListenAndServe(address, nil))
}
