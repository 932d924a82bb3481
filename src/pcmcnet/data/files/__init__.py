"""Files and data frames: tables are read into Arrow and written from Arrow."""
