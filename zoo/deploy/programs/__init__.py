"""Programs that are copied to exports. They import only the packages that the export names."""
