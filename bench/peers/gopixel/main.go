// The smallest server for the pixel in Go: one handler, one constant answer.
//
//	gopixel ADDRESS GIF
package main

import (
	"log"
	"net/http"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: gopixel ADDRESS GIF")
	}
	gif, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "image/gif")
		w.Write(gif)
	})
	log.Fatal(http.ListenAndServe(os.Args[1], nil))
}
